/* Numbers of seven bits a byte, lowest first, and runs of bytes: in bodies of Avro and Protobuf. */
#ifndef RMQ_PAYLOADS_BASE128_H
#define RMQ_PAYLOADS_BASE128_H

#include "columns.h"

/* Bits of the longest form of a number of 64 bits. */
enum { LONG_BITS = 70 };

/* Refuses a form of more than `bits`, also if the number is small, and a number of more than 64. */
static inline int read_base128(Reader *reader, int bits, uint64_t *number) {
    uint64_t found = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (reader->at == reader->end)
            return REFUSED;
        uint8_t byte = *reader->at++;
        if (shift == 63 && byte > 1)
            return REFUSED;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = found;
            return 0;
        }
    }
    return REFUSED;
}

static inline int take(Reader *reader, uint64_t size, const uint8_t **data) {
    if (size > left(reader))
        return REFUSED;
    *data = reader->at;
    reader->at += size;
    return 0;
}

/* 0, -1, 1, -2, … as 0, 1, 2, 3, … */
static inline int64_t from_zigzag(uint64_t bits) {
    return (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
}

#endif
