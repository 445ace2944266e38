/* The header of one plain send, read; shared by those who take one and those who take many. */
#ifndef RMQ_NATIVE_PLAIN_SEND_H
#define RMQ_NATIVE_PLAIN_SEND_H

#include "native_module.h"
#include "native_text.h"

typedef struct {
    const uint8_t *data;
    size_t size;
    int has_escape;
} Text;

typedef struct {
    int64_t code, flag, opaque, version;
    unsigned seen;   /* bits of the entries met */
    unsigned fields; /* bit per one-letter field */
    Text topic, text;
    int64_t queue_id, sys_flag, born, user_flag;
    int is_batch;
} PlainSendHeader;

enum { PLAIN_ONE = 310, PLAIN_BATCH = 320 };

/* Reads a header of SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE; 0 for one that is for the general way. */
int plain_send_read(const uint8_t *data, size_t size, int64_t code, PlainSendHeader *header);

/* The property text, unescaped and ended, at most one byte longer than the escaped one; its size,
 * or 0 if a property is for the general way. `unique` points into `out`. */
size_t plain_send_text(const PlainSendHeader *header, uint8_t *out, Slice *unique);

#endif
