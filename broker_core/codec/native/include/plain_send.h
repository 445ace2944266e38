/* The parsed header of one plain send; shared by read_plain_send and read_sends. */
#ifndef RMQ_NATIVE_PLAIN_SEND_H
#define RMQ_NATIVE_PLAIN_SEND_H

#include "module.h"
#include "text.h"

typedef struct {
    const uint8_t *data;
    size_t size;
    int has_escape;
} Text;

typedef struct {
    int64_t code, flag, opaque, version;
    unsigned seen;   /* bits of the entries found */
    unsigned fields; /* bit per one-letter field */
    Text topic, text;
    int64_t queue_id, sys_flag, born, user_flag;
    int is_batch;
} PlainSendHeader;

enum { PLAIN_ONE = 310, PLAIN_BATCH = 320 };

/* Parses a header of SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE; 0 if it needs the general decoder. */
int plain_send_read(const uint8_t *data, size_t size, int64_t code, PlainSendHeader *header);

/* Writes the property text, unescaped and with its last separator: at most one byte longer than the
 * escaped one. Returns its size, or 0 if a property needs the general decoder. `unique` points into
 * `out`. */
size_t plain_send_text(const PlainSendHeader *header, uint8_t *out, Slice *unique);

#endif
