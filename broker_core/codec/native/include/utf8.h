/* UTF-8, and eight bytes at a time. */
#ifndef RMQ_NATIVE_UTF8_H
#define RMQ_NATIVE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ONES 0x0101010101010101ULL
#define TOPS 0x8080808080808080ULL
#define REPLACEMENT 0xFFFDu

/* Non-zero iff some byte of `word` is zero; the lowest set bit marks the first one in memory order
 * of a little-endian load. */
static inline uint64_t zero_bytes(uint64_t word) { return (word - ONES) & ~word & TOPS; }

static inline uint64_t load_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline int is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* Decodes one character and advances. An invalid part (a lead byte and the continuation bytes that
 * could follow it) is consumed whole; *valid is cleared and U+FFFD returned. */
static inline uint32_t next_character(const uint8_t **cursor, const uint8_t *end, int *valid) {
    const uint8_t *at = *cursor;
    uint8_t lead = *at++;
    *cursor = at;
    if (lead < 0x80)
        return lead;
    int more;
    uint32_t character;
    uint8_t second_min = 0x80, second_max = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        more = 1;
        character = lead & 0x1Fu;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        more = 2;
        character = lead & 0x0Fu;
        if (lead == 0xE0)
            second_min = 0xA0; /* shorter forms exist */
        if (lead == 0xED)
            second_max = 0x9F; /* surrogates */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        more = 3;
        character = lead & 0x07u;
        if (lead == 0xF0)
            second_min = 0x90; /* shorter forms exist */
        if (lead == 0xF4)
            second_max = 0x8F; /* above U+10FFFF */
    } else {
        *valid = 0;
        return REPLACEMENT;
    }
    for (int count = 0; count < more; count++) {
        int fits = at < end && (count == 0 ? *at >= second_min && *at <= second_max
                                           : is_continuation(*at));
        if (!fits) {
            *cursor = at;
            *valid = 0;
            return REPLACEMENT;
        }
        character = (character << 6) | (*at++ & 0x3Fu);
    }
    *cursor = at;
    return character;
}

/* Writes at most 4 bytes and returns how many. */
static inline size_t put_character(uint32_t character, uint8_t *out) {
    if (character < 0x80) {
        out[0] = (uint8_t)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (uint8_t)(0xC0 | (character >> 6));
        out[1] = (uint8_t)(0x80 | (character & 0x3F));
        return 2;
    }
    if (character < 0x10000) {
        out[0] = (uint8_t)(0xE0 | (character >> 12));
        out[1] = (uint8_t)(0x80 | ((character >> 6) & 0x3F));
        out[2] = (uint8_t)(0x80 | (character & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | (character >> 18));
    out[1] = (uint8_t)(0x80 | ((character >> 12) & 0x3F));
    out[2] = (uint8_t)(0x80 | ((character >> 6) & 0x3F));
    out[3] = (uint8_t)(0x80 | (character & 0x3F));
    return 4;
}

/* True if the bytes are well-formed UTF-8. */
static inline int is_valid_utf8(const uint8_t *text, size_t size) {
    const uint8_t *end = text + size;
    while (text < end) {
        if (end - text >= 8 && (load_word(text) & TOPS) == 0) {
            text += 8;
        } else if (*text < 0x80) {
            text++;
        } else {
            int valid = 1;
            next_character(&text, end, &valid);
            if (!valid)
                return 0;
        }
    }
    return 1;
}

#endif
