/* UTF-8, Java string hashes and property text. These functions call no Python. */
#ifndef RMQ_NATIVE_TEXT_H
#define RMQ_NATIVE_TEXT_H

#include "layout.h"
#include "utf8.h"

typedef struct {
    const uint8_t *data; /* NULL = absent */
    size_t size;
} Slice;

/* The properties that the codec uses. */
typedef struct {
    Slice tags, keys, unique_key, delay;
} NamedProperties;

enum { WANT_TAGS = 1, WANT_KEYS = 2, WANT_UNIQUE_KEY = 4, WANT_DELAY = 8 };

/* Fills `found` with the wanted properties; all others are absent. */
void find_properties(const uint8_t *text, size_t size, unsigned want, NamedProperties *found);

/* Java's String.hashCode of `text`, continued from the hash of the text before it. Invalid UTF-8
 * counts as U+FFFD per maximal invalid part, as bytes.decode("utf-8", "replace"). */
uint32_t java_hash_continue(uint32_t hash, const uint8_t *text, size_t size);

/* Writes `text` with invalid parts replaced by U+FFFD; `out` needs 3 * size bytes. Returns the
 * bytes written. */
size_t replace_invalid_utf8(const uint8_t *text, size_t size, uint8_t *out);

/* Writes two upper-case digits per byte; returns the end of what was written. */
static inline uint8_t *put_hex(uint8_t *out, const uint8_t *bytes, size_t size) {
    static const char digits[] = "0123456789ABCDEF";
    for (size_t index = 0; index < size; index++) {
        *out++ = (uint8_t)digits[bytes[index] >> 4];
        *out++ = (uint8_t)digits[bytes[index] & 15];
    }
    return out;
}

/* Whether `text` contains 0x01 or 0x02, the separators of property text. */
int has_separator(const uint8_t *text, size_t size);

#endif
