/* Parsing and verification of one log record: the native definition of a valid record.
 *
 * `record_parse` checks the structure, `record_verify` the content; both mirror record_parse.py
 * check by check, in the same order, so that the first fault found is the same.
 */
#ifndef RMQ_NATIVE_RECORD_H
#define RMQ_NATIVE_RECORD_H

#include "layout.h"

/* Places and lengths inside one record; read once, so that bytes changing under a shared mapping
 * cannot move a later access outside the record. */
typedef struct {
    const uint8_t *start;
    uint32_t size;
    uint32_t sys_flag;
    uint32_t body_at, body_size;
    uint32_t topic_at, topic_size;
    uint32_t properties_at, properties_size;
} Record;

typedef enum { TAIL_NONE, TAIL_WELL_FORMED, TAIL_DAMAGED } TailKind;

extern const uint8_t topic_characters[256]; /* 1 for [%|a-zA-Z0-9_-] */

int is_topic_text(const uint8_t *text, size_t size);

/* Classifies the last 20 bytes of a property text; `value` gets the checksum if well-formed. */
TailKind classify_tail(const uint8_t *tail, uint64_t *value);

/* The 20 bytes of a checksum property. */
void write_tail(uint8_t *tail, uint32_t checksum);

/* CRC of the whole record up to its tail, given the unmasked CRC of its body. */
uint32_t record_crc(const Record *record, uint32_t body_crc);

/* Checks the checksums of a parsed record. Level 2 rejects a record without a whole-record
 * checksum; DAMAGE_ONLY may be added to a level. */
Reason record_verify(const Record *record, int level);

/* Checks the structure of the record at start[0:room]. */
Reason record_parse(const uint8_t *start, size_t room, Record *record);

/* Classifies the tail of a record. */
static inline TailKind record_tail(const Record *record, uint64_t *value) {
    if (record->properties_size < CRC_TAIL_SIZE)
        return TAIL_NONE;
    return classify_tail(record->start + record->size - CRC_TAIL_SIZE, value);
}

/* Prefetches the ends of a later record, assuming that it has the same size, as neighbours often
 * do. Walks that skip bodies touch too little of each record for the hardware prefetcher. */
static inline void fetch_ahead(const Record *record, size_t room) {
    enum { RECORDS_AHEAD = 4, LINE_SIZE = 64, SIZE_MIN = 384 };
    size_t end = (size_t)record->size * (RECORDS_AHEAD + 1);
    if (record->size < SIZE_MIN || end > room)
        return;
    const uint8_t *ahead = record->start + end - record->size;
    __builtin_prefetch(ahead);
    __builtin_prefetch(ahead + LINE_SIZE);
    __builtin_prefetch(record->start + end - LINE_SIZE);
    __builtin_prefetch(record->start + end - 1);
}

static inline const uint8_t *record_store_timestamp(const Record *record) {
    return record->start + BORN_HOST_AT +
           (record->sys_flag & BORN_HOST_IPV6 ? IPV6_HOST_SIZE : IPV4_HOST_SIZE);
}

static inline const uint8_t *record_store_host(const Record *record) {
    return record_store_timestamp(record) + 8;
}

static inline size_t record_store_host_size(const Record *record) {
    return record->sys_flag & STORE_HOST_IPV6 ? IPV6_HOST_SIZE : IPV4_HOST_SIZE;
}

static inline uint64_t record_position(const Record *record) {
    return load_u64(record->start + PHYSICAL_OFFSET_AT);
}

#endif
