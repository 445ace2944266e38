/* A byte buffer that grows; usable without the GIL. */
#ifndef RMQ_NATIVE_GROWTH_H
#define RMQ_NATIVE_GROWTH_H

#include "module.h"

/* Writable bytes behind every reservation, for copies of whole blocks. */
enum { GROWTH_SPARE_SIZE = 16 };

typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Growth;

/* Space for `extra` more bytes at data + size; NULL when out of memory. */
static inline uint8_t *growth_reserve(Growth *growth, size_t extra) {
    size_t needed = growth->size + extra + GROWTH_SPARE_SIZE;
    if (needed > growth->capacity) {
        size_t capacity = needed + needed / 2 + 256;
        uint8_t *data = PyMem_RawRealloc(growth->data, capacity);
        if (data == NULL)
            return NULL;
        growth->data = data;
        growth->capacity = capacity;
    }
    return growth->data + growth->size;
}

/* Appends bytes. Returns 0, or -1 when out of memory. */
static inline int growth_put(Growth *growth, const void *data, size_t size) {
    uint8_t *at = growth_reserve(growth, size);
    if (at == NULL)
        return -1;
    if (size != 0)
        memcpy(at, data, size);
    growth->size += size;
    return 0;
}

/* Appends a native-endian 64-bit number. */
static inline int growth_put_number(Growth *growth, int64_t value) {
    return growth_put(growth, &value, 8);
}

static inline void growth_free(Growth *growth) {
    PyMem_RawFree(growth->data);
    *growth = (Growth){0};
}

static inline PyObject *growth_bytes(const Growth *growth) {
    return PyBytes_FromStringAndSize((const char *)growth->data, (Py_ssize_t)growth->size);
}

#endif
