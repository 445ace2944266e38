/* Byte layout shared by all native codec files.
 *
 * Holds: widths and positions of the commit-log record, big-endian loads and stores, and the
 * numbered reasons a check can fail with. Owns no state and calls no Python.
 *
 * Record (all integers big-endian; B and S are 8 or 20 bytes, chosen by SYSFLAG bits):
 *
 *     at  bytes  field                    at        bytes  field
 *      0    4    TOTALSIZE                48          B    BORNHOST
 *      4    4    MAGIC                    48+B        8    STORETIMESTAMP
 *      8    4    BODYCRC                  56+B        S    STOREHOST
 *     12    4    QUEUEID                  56+B+S      4    RECONSUMETIMES
 *     16    4    FLAG                     60+B+S      8    PREPARED TRANSACTION OFFSET
 *     20    8    QUEUEOFFSET              68+B+S      4+n  BODYLEN, BODY
 *     28    8    PHYSICALOFFSET           72+B+S+n    1+t  TOPICLEN (2 bytes in V2), TOPIC
 *     36    4    SYSFLAG                  ...         2+p  PROPLEN, PROPERTIES
 *     40    8    BORNTIMESTAMP
 */
#ifndef RMQ_NATIVE_LAYOUT_H
#define RMQ_NATIVE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define MAGIC_BLANK 0xCBD43194u

enum {
    AT_SIZE = 0,
    AT_MAGIC = 4,
    AT_BODY_CRC = 8,
    AT_QUEUE_ID = 12,
    AT_FLAG = 16,
    AT_QUEUE_OFFSET = 20,
    AT_PHYSICAL_OFFSET = 28,
    AT_SYS_FLAG = 36,
    AT_BORN_TIMESTAMP = 40,
    AT_BORN_HOST = 48,

    HOST_V4_SIZE = 8,
    HOST_V6_SIZE = 20,
    BODY_LENGTH_AT_V4 = 84,  /* where BODYLEN is when both hosts are IPv4 */
    HEADER_SIZE_MAX = 112,   /* everything before BODY, both hosts IPv6 */
    RECORD_SIZE_MIN = 91,    /* V1, IPv4 hosts, nothing of variable length */
    SEGMENT_SPARE_SIZE = 8,  /* room a segment always keeps for its blank record */
    TOPIC_SIZE_MAX_V1 = 127,
    TOPIC_SIZE_MAX_V2 = 255,
    PROPERTIES_SIZE_MAX = 32767,
    CRC_TAIL_SIZE = 20,      /* __CRC32# 0x01 ten digits 0x02 */
    CRC_DIGITS_AT = 9,       /* inside the tail */
    CRC_DIGIT_COUNT = 10,
    CRC_TAIL_MATCH_MIN = 8,  /* of its 10 constant bytes: it was meant as a tail */
    UNIT_SIZE = 20,
    PRE_BLANK_SIZE = 0x7FFFFFFF,
    /* Added to a level of checks. */
    ELSEWHERE = 4,   /* units do not say log positions */
    DAMAGE_ONLY = 8, /* a right whole-record checksum will do, since it covers the body */

    SYS_FLAG_TRANSACTION = 0x0C,
    SYS_FLAG_PREPARED = 0x04,
    SYS_FLAG_ROLLBACK = 0x0C,
    SYS_FLAG_BORN_V6 = 0x10,
    SYS_FLAG_STORE_V6 = 0x20,
};

/* Why a check failed. The texts are in record_reasons.py under the same names; a name that is
 * missing there makes the import fail. */
#define FOR_EACH_REASON(X)                                                                         \
    X(BAD_COUNT) X(NO_QUEUES) X(BAD_TOPIC_LENGTH) X(BAD_TOPIC_NAME) X(BAD_QUEUE_ID) X(BAD_HOST)    \
    X(BAD_NUMBER) X(BAD_WIDTH) X(COLUMN_TOO_SHORT) X(BAD_QUEUE_INDEX) X(BAD_OFFSETS)               \
    X(TAGS_SEPARATOR) X(KEYS_SEPARATOR) X(PROPERTIES_UNSAFE) X(PROPERTIES_TOO_LONG)                \
    X(RECORD_TOO_LONG) X(HEADER_CUT) X(BAD_MAGIC) X(SIZE_TOO_SMALL) X(SIZE_PAST_LIMIT)             \
    X(NEGATIVE_BODY) X(LENGTHS_DISAGREE) X(RECORD_TOPIC_LENGTH) X(NEGATIVE_PROPERTIES)             \
    X(RECORD_QUEUE_ID) X(RECORD_QUEUE_OFFSET) X(PROPERTIES_TORN) X(BAD_POSITION)                   \
    X(CRC_TAIL_DAMAGED) X(RECORD_CRC) X(BODY_CRC) X(QUEUE_GAP) X(BAD_QUEUE_REFERENCE)              \
    X(BAD_ORDINAL) X(RECORD_EXCEEDS_SEGMENT) X(BODY_EXCEEDS_LIMIT) X(STORE_HOST_DISAGREES)         \
    X(PRE_BLANK_UNIT) X(BAD_UNIT) X(NOT_IN_SPANS) X(UNIT_SIZE_DISAGREES) X(QUEUE_OFFSET_DISAGREES)                   \
    X(QUEUE_ID_DISAGREES) X(TOPIC_DISAGREES) X(BAD_RANGE) X(BAD_LOG_POSITION) X(BAD_FIRST_ROW)     \
    X(BAD_NEXT_OFFSETS) X(BAD_SEGMENT_SIZE) X(BAD_UNITS) X(BAD_ENTRIES) X(BAD_INDEX_FILE)          \
    X(COLUMN_TOO_LARGE)

#define REASON_ENUMERATOR(name) REASON_##name,
typedef enum {
    REASON_NONE,
    FOR_EACH_REASON(REASON_ENUMERATOR) REASON_COUNT,
    REASON_NO_MEMORY
} Reason;
#undef REASON_ENUMERATOR

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BIG16(value) __builtin_bswap16(value)
#define BIG32(value) __builtin_bswap32(value)
#define BIG64(value) __builtin_bswap64(value)
#else
#define BIG16(value) (value)
#define BIG32(value) (value)
#define BIG64(value) (value)
#endif

/* memcpy keeps unaligned access defined; compilers turn it into one move. */
static inline uint16_t load_u16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, 2);
    return BIG16(value);
}

static inline uint32_t load_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return BIG32(value);
}

static inline uint64_t load_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return BIG64(value);
}

static inline int32_t load_i32(const uint8_t *at) { return (int32_t)load_u32(at); }
static inline int64_t load_i64(const uint8_t *at) { return (int64_t)load_u64(at); }

static inline void store_u16(uint8_t *at, uint16_t value) {
    value = BIG16(value);
    memcpy(at, &value, 2);
}

static inline void store_u32(uint8_t *at, uint32_t value) {
    value = BIG32(value);
    memcpy(at, &value, 4);
}

static inline void store_u64(uint8_t *at, uint64_t value) {
    value = BIG64(value);
    memcpy(at, &value, 8);
}

/* Native-endian 64-bit counters in caller buffers, which may be unaligned. */
static inline uint64_t load_counter(const uint8_t *counters, size_t index) {
    uint64_t value;
    memcpy(&value, counters + index * 8, 8);
    return value;
}

static inline void store_counter(uint8_t *counters, size_t index, uint64_t value) {
    memcpy(counters + index * 8, &value, 8);
}

/* Prepared and rollback records take no queue offset and get no consume-queue unit. */
static inline int takes_queue_offset(uint32_t sys_flag) {
    return (sys_flag & SYS_FLAG_PREPARED) == 0;
}

#endif
