/* Structure and checksums of one record, and its checksum property. */
#include "record.h"

#include "crc.h"

/* From this body size on, joining two checksums is cheaper than reading the body twice. */
enum { JOIN_BODY_SIZE_MIN = 256 };

static const uint8_t tail_head[CRC_DIGITS_AT] = {'_', '_', 'C', 'R', 'C', '3', '2', '#', 1};

#define TEN_DIGITS 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
#define LETTERS_26 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
const uint8_t topic_characters[256] = {
    ['%'] = 1, ['|'] = 1, ['_'] = 1, ['-'] = 1, ['0'] = TEN_DIGITS, ['A'] = LETTERS_26,
    ['a'] = LETTERS_26,
};

int is_topic_text(const uint8_t *text, size_t size) {
    uint8_t all = 1;
    for (size_t index = 0; index < size; index++)
        all &= topic_characters[text[index]];
    return all;
}

/* Whether eight bytes, from each of which '0' was subtracted, were digits. A smaller byte has
 * borrowed from its neighbour and has its top bit set. */
static inline int are_digits(uint64_t bytes) {
    return ((bytes | (bytes + 0x7676767676767676u)) & 0x8080808080808080u) == 0;
}

/* The number of eight digits, the least significant one in the lowest byte: joins neighbours, then
 * pairs, then fours. */
static inline uint64_t number_of(uint64_t digits) {
    digits = (digits & 0x00FF00FF00FF00FFu) + (digits >> 8 & 0x00FF00FF00FF00FFu) * 10;
    digits = (digits & 0x0000FFFF0000FFFFu) + (digits >> 16 & 0x0000FFFF0000FFFFu) * 100;
    return (digits & 0xFFFFFFFFu) + (digits >> 32) * 10000;
}

TailKind classify_tail(const uint8_t *tail, uint64_t *value) {
    const uint8_t *digits = tail + CRC_DIGITS_AT;
    if (memcmp(tail, tail_head, sizeof tail_head) == 0 && tail[CRC_TAIL_SIZE - 1] == 2) {
        uint64_t low = __builtin_bswap64(load_u64(digits)) - 0x3030303030303030u;
        unsigned ninth = (unsigned)digits[8] - '0', tenth = (unsigned)digits[9] - '0';
        if (!are_digits(low) || ninth > 9 || tenth > 9)
            return TAIL_DAMAGED;
        *value = number_of(low) + (ninth + tenth * 10ull) * 100000000;
        return TAIL_WELL_FORMED;
    }
    int matches = tail[CRC_TAIL_SIZE - 1] == 2;
    for (size_t index = 0; index < sizeof tail_head; index++)
        matches += tail[index] == tail_head[index];
    /* A sector lost in a crash reads as zeros, which property text never contains. */
    return matches >= CRC_TAIL_MATCH_MIN || memchr(tail, 0, CRC_TAIL_SIZE) != NULL ? TAIL_DAMAGED
                                                                                   : TAIL_NONE;
}

/* The digits of a number below 10^8, the least significant one in the lowest byte: splits into
 * fours, then pairs, then digits. The factors divide by 100 and by 10. */
static inline uint64_t digits_of(uint32_t value) {
    uint64_t fours = value % 10000 | (uint64_t)(value / 10000) << 32;
    uint64_t hundreds = (fours * 10486 >> 20) & 0x0000007F0000007Fu;
    uint64_t pairs = (fours - hundreds * 100) | hundreds << 16;
    uint64_t tens = (pairs * 103 >> 10) & 0x000F000F000F000Fu;
    return (pairs - tens * 10) | tens << 8;
}

void write_tail(uint8_t *tail, uint32_t checksum) {
    memcpy(tail, tail_head, sizeof tail_head);
    uint8_t *digits = tail + CRC_DIGITS_AT;
    /* Least significant digit first. */
    store_u64(digits, __builtin_bswap64(digits_of(checksum % 100000000) + 0x3030303030303030u));
    uint32_t high = checksum / 100000000;
    digits[8] = (uint8_t)('0' + high % 10);
    digits[9] = (uint8_t)('0' + high / 10);
    tail[CRC_TAIL_SIZE - 1] = 2;
}

uint32_t record_crc(const Record *record, uint32_t body_crc) {
    size_t covered = record->size - CRC_TAIL_SIZE;
    if (record->body_size < JOIN_BODY_SIZE_MIN)
        return crc_update(0, record->start, covered);
    size_t body_end = (size_t)record->body_at + record->body_size;
    uint32_t crc = crc_update(0, record->start, record->body_at);
    crc = crc_join(crc, body_crc, record->body_size);
    return crc_update(crc, record->start + body_end, covered - body_end);
}

Reason record_verify(const Record *record, int level) {
    uint64_t stored = 0;
    TailKind tail = record_tail(record, &stored);
    if (tail == TAIL_DAMAGED || (tail == TAIL_NONE && (level & ~DAMAGE_ONLY) > 1))
        return REASON_CRC_TAIL_DAMAGED;
    if (tail == TAIL_WELL_FORMED && level & DAMAGE_ONLY) {
        uint32_t found = crc_update(0, record->start, record->size - CRC_TAIL_SIZE);
        return stored == (found & CRC_MASK) ? REASON_NONE : REASON_RECORD_CRC;
    }
    uint32_t body_crc = crc_update(0, record->start + record->body_at, record->body_size);
    if (tail == TAIL_WELL_FORMED && stored != (record_crc(record, body_crc) & CRC_MASK))
        return REASON_RECORD_CRC;
    if (load_u32(record->start + BODY_CRC_AT) != (body_crc & CRC_MASK))
        return REASON_BODY_CRC;
    return REASON_NONE;
}

/* Topic and properties, whose place depends on the body length. `rest_size` is the record
 * size without fixed fields and body; TOPICLEN is at `at`. */
static Reason parse_variable_part(Record *record, uint32_t at, uint32_t rest_size, int is_v2) {
    const uint8_t *start = record->start;
    uint32_t topic_size = is_v2 ? load_u16(start + at) : start[at];
    uint32_t topic_size_max = is_v2 ? TOPIC_MAX : TOPIC_V1_MAX;
    if (topic_size - 1 >= topic_size_max)
        return REASON_RECORD_TOPIC_LENGTH;
    if (topic_size > rest_size)
        return REASON_LENGTHS_DISAGREE;
    record->topic_at = at + 1 + (uint32_t)is_v2;
    record->topic_size = topic_size;
    uint32_t properties_at = record->topic_at + topic_size + 2;
    uint32_t properties_size = load_u16(start + properties_at - 2);
    if (properties_size > PROPERTY_TEXT_MAX)
        return REASON_NEGATIVE_PROPERTIES;
    if (topic_size + properties_size != rest_size)
        return REASON_LENGTHS_DISAGREE;
    record->properties_at = properties_at;
    record->properties_size = properties_size;
    if (!is_topic_text(start + record->topic_at, topic_size))
        return REASON_BAD_TOPIC_NAME;
    if (load_i32(start + QUEUE_ID_AT) < 0)
        return REASON_RECORD_QUEUE_ID;
    if (load_i64(start + QUEUE_OFFSET_AT) < 0)
        return REASON_RECORD_QUEUE_OFFSET;
    if (properties_size != 0 && start[record->size - 1] == 0)
        return REASON_PROPERTIES_TORN;
    return REASON_NONE;
}

Reason record_parse(const uint8_t *start, size_t room, Record *record) {
    if (room < 8)
        return REASON_HEADER_CUT;
    uint32_t magic = load_u32(start + MAGIC_AT);
    int is_v2 = magic == MAGIC_V2;
    if (magic != MAGIC_V1 && !is_v2)
        return REASON_BAD_MAGIC;
    int32_t size = load_i32(start + SIZE_AT);
    if (size < RECORD_SIZE_MIN)
        return REASON_SIZE_TOO_SMALL;
    if ((size_t)size > room)
        return REASON_SIZE_PAST_LIMIT;
    uint32_t sys_flag = load_u32(start + SYS_FLAG_AT);
    uint32_t v6_hosts =
        ((sys_flag & BORN_HOST_IPV6) != 0) + ((sys_flag & STORE_HOST_IPV6) != 0);
    uint32_t host_extra = (IPV6_HOST_SIZE - IPV4_HOST_SIZE) * v6_hosts;
    uint32_t fixed_size = RECORD_SIZE_MIN + (uint32_t)is_v2 + host_extra;
    if ((uint32_t)size < fixed_size)
        return REASON_LENGTHS_DISAGREE;
    int32_t body_size = load_i32(start + BODY_LENGTH_AT + host_extra);
    if (body_size < 0)
        return REASON_NEGATIVE_BODY;
    if ((uint32_t)body_size > (uint32_t)size - fixed_size)
        return REASON_LENGTHS_DISAGREE;
    record->start = start;
    record->size = (uint32_t)size;
    record->sys_flag = sys_flag;
    record->body_at = BODY_LENGTH_AT + host_extra + 4;
    record->body_size = (uint32_t)body_size;
    return parse_variable_part(record, record->body_at + record->body_size,
                               (uint32_t)size - fixed_size - (uint32_t)body_size, is_v2);
}
