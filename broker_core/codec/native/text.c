/* UTF-8, Java string hashes and property text.
 *
 * Most texts are short ASCII, so each function reads eight bytes at a time as long as that holds
 * and only then decodes character by character.
 */
#include "text.h"

#include "module.h"

static const uint8_t *find_byte(const uint8_t *at, const uint8_t *end, uint8_t wanted) {
    for (; end - at >= 8; at += 8) {
        uint64_t hits = zero_bytes(load_word(at) ^ (ONES * wanted));
        if (hits != 0) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return at + (__builtin_ctzll(hits) >> 3);
#else
            break;
#endif
        }
    }
    while (at < end && *at != wanted)
        at++;
    return at;
}

int has_separator(const uint8_t *text, size_t size) {
    const uint8_t *end = text + size;
    for (; end - text >= 8; text += 8) {
        uint64_t word = load_word(text);
        if (zero_bytes(word ^ ONES) | zero_bytes(word ^ (ONES * 2)))
            return 1;
    }
    for (; text < end; text++) {
        if (*text == 1 || *text == 2)
            return 1;
    }
    return 0;
}

/* The pair [at, end) if it is `name` 0x01 value with a non-empty value. */
static inline int match_pair(const uint8_t *at, const uint8_t *end, const char *name,
                             size_t name_size, Slice *value) {
    if ((size_t)(end - at) <= name_size + 1 || memcmp(at, name, name_size) != 0 ||
        at[name_size] != 1)
        return 0;
    value->data = at + name_size + 1;
    value->size = (size_t)(end - value->data);
    return 1;
}

void find_properties(const uint8_t *text, size_t size, unsigned want, NamedProperties *found) {
    memset(found, 0, sizeof *found);
    const uint8_t *end = text + size;
    while (text < end) {
        const uint8_t *pair_end = find_byte(text, end, 2);
        /* A later pair of the same name replaces the earlier one, as in Java's map. */
        switch (*text) {
        case 'T':
            if (want & WANT_TAGS)
                match_pair(text, pair_end, "TAGS", 4, &found->tags);
            break;
        case 'K':
            if (want & WANT_KEYS)
                match_pair(text, pair_end, "KEYS", 4, &found->keys);
            break;
        case 'U':
            if (want & WANT_UNIQUE_KEY)
                match_pair(text, pair_end, "UNIQ_KEY", 8, &found->unique_key);
            break;
        case 'D':
            if (want & WANT_DELAY)
                match_pair(text, pair_end, "DELAY", 5, &found->delay);
            break;
        }
        text = pair_end + 1;
    }
}

uint32_t java_hash_continue(uint32_t hash, const uint8_t *text, size_t size) {
    const uint8_t *end = text + size;
    for (; end - text >= 4; text += 4) {
        if ((text[0] | text[1] | text[2] | text[3]) & 0x80)
            break;
        hash = hash * 923521u + text[0] * 29791u + text[1] * 961u + text[2] * 31u + text[3];
    }
    while (text < end) {
        int valid = 1;
        uint32_t character = *text < 0x80 ? *text++ : next_character(&text, end, &valid);
        if (character >= 0x10000) {
            /* Java counts UTF-16 units: a surrogate pair. */
            hash = hash * 31u + (0xD7C0u + (character >> 10));
            character = 0xDC00u + (character & 0x3FFu);
        }
        hash = hash * 31u + character;
    }
    return hash;
}

size_t replace_invalid_utf8(const uint8_t *text, size_t size, uint8_t *out) {
    const uint8_t *end = text + size;
    uint8_t *start = out;
    while (text < end) {
        int valid = 1;
        out += put_character(next_character(&text, end, &valid), out);
    }
    return (size_t)(out - start);
}

static PyObject *codec_java_hash(PyObject *module, PyObject *text) {
    (void)module;
    if (!PyBytes_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "text must be bytes");
        return NULL;
    }
    uint32_t hash = java_hash_continue(0, (const uint8_t *)PyBytes_AsString(text),
                                       (size_t)PyBytes_Size(text));
    return PyLong_FromLong((int32_t)hash);
}

PyMethodDef text_functions[] = {
    NATIVE_FUNCTION(
        java_hash, ONE_ARGUMENT,
        "text, /",
        "Java's String.hashCode of UTF-8 text."),
    {NULL, NULL, 0, NULL},
};
