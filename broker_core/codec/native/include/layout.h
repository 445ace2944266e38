/* Byte layout of the log record and of what is derived from it, big-endian loads and stores, and
 * the numbered reasons for which a check can fail. No state, no Python.
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

/* record_layout.py has the same constants under the same names; a test compares the two files. */
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define MAGIC_BLANK 0xCBD43194u
#define CRC_MASK 0x7FFFFFFFu /* stored checksums have the top bit cleared */

enum {
    SIZE_AT = 0,
    MAGIC_AT = 4,
    BODY_CRC_AT = 8,
    QUEUE_ID_AT = 12,
    FLAG_AT = 16,
    QUEUE_OFFSET_AT = 20,
    PHYSICAL_OFFSET_AT = 28,
    SYS_FLAG_AT = 36,
    BORN_TIMESTAMP_AT = 40,
    BORN_HOST_AT = 48,
    PREPARED_OFFSET_AT = 76, /* when both hosts are IPv4 */
    BODY_LENGTH_AT = 84,     /* when both hosts are IPv4 */

    IPV4_HOST_SIZE = 8,
    IPV6_HOST_SIZE = 20,
    HEADER_SIZE_MAX = 112,   /* everything before BODY, both hosts IPv6 */
    RECORD_SIZE_MIN = 91,    /* V1, IPv4 hosts, without body, topic and properties */
    BLANK_RESERVE = 8,       /* bytes that a segment always keeps free for its blank record */
    TOPIC_V1_MAX = 127,
    TOPIC_MAX = 255,
    PROPERTY_TEXT_MAX = 32767,
    CRC_TAIL_SIZE = 20,      /* __CRC32# 0x01 ten digits 0x02 */
    CRC_DIGITS_AT = 9,       /* inside the tail */
    CRC_DIGIT_COUNT = 10,
    CRC_TAIL_MATCH_MIN = 8,  /* of its 10 constant bytes: it was meant as a tail */

    BORN_HOST_IPV6 = 0x10,
    STORE_HOST_IPV6 = 0x20,
    HOST_BITS = 0x30,
    TRANSACTION_BITS = 0x0C,
    TRANSACTION_PREPARED = 0x04,
    TRANSACTION_ROLLBACK = 0x0C,

    /* Consume-queue unit. */
    UNIT_SIZE = 20,
    UNIT_RECORD_SIZE_AT = 8,
    UNIT_TAGS_CODE_AT = 12,
    PRE_BLANK_SIZE = 0x7FFFFFFF, /* record size of a filler unit */

    /* Key entry of a scan. */
    KEY_ENTRY_SIZE = 20,
    KEY_ENTRY_POSITION_AT = 4,
    KEY_ENTRY_TIMESTAMP_AT = 12,

    /* Message in the body of a batch send. Its CRC is always 0. */
    BATCH_ITEM_MAGIC_AT = 4,
    BATCH_ITEM_FLAG_AT = 12,
    BATCH_ITEM_BODY_LENGTH_AT = 16,
    BATCH_ITEM_BODY_AT = 20,
    BATCH_ITEM_SIZE_MIN = 22, /* without body and property text */

    /* Positions given to the records of a pull response: queue offset of the first record of a run
     * (its low bits) times a size that no record exceeds. */
    WIRE_PLACE_SHIFT = 24,
    WIRE_PLACE_BITS = 38,

    /* Added to a level of checks. */
    ELSEWHERE = 4,   /* queue units do not give log positions */
    DAMAGE_ONLY = 8, /* a correct whole-record checksum suffices, since it covers the body */
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
    X(PRE_BLANK_UNIT) X(BAD_UNIT) X(NOT_IN_SPANS) X(UNIT_SIZE_DISAGREES)                           \
    X(QUEUE_OFFSET_DISAGREES) X(QUEUE_ID_DISAGREES) X(TOPIC_DISAGREES) X(BAD_RANGE)                \
    X(BAD_LOG_POSITION) X(BAD_FIRST_ROW) X(BAD_NEXT_OFFSETS) X(BAD_SEGMENT_SIZE)                   \
    X(BAD_UNITS) X(BAD_ENTRIES) X(BAD_INDEX_FILE) X(COLUMN_TOO_LARGE)

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
    return (sys_flag & TRANSACTION_PREPARED) == 0;
}

#endif
