/* A byte buffer that grows; usable without the GIL.
 *
 * A buffer whose final size is about known can begin inside the bytes object that it becomes. Then
 * it is not copied at the end; if it gets larger than that, it moves to memory of its own.
 */
#ifndef RMQ_NATIVE_GROWTH_H
#define RMQ_NATIVE_GROWTH_H

#include "module.h"

/* Writable bytes behind every reservation, for copies of whole blocks. */
enum { GROWTH_SPARE_SIZE = 16 };

typedef struct {
    uint8_t *data;
    size_t size, capacity;
    PyObject *bytes; /* holds the data, or held its beginning; NULL: none */
} Growth;

static inline int growth_is_in_bytes(const Growth *growth) {
    return growth->bytes != NULL &&
           growth->data == (const uint8_t *)PyBytes_AS_STRING(growth->bytes);
}

/* Begins in a bytes object with room for `size` bytes. With the GIL. Returns 0, or -1 with an
 * exception set. */
static inline int growth_begin_in_bytes(Growth *growth, size_t size) {
    size_t capacity = size + GROWTH_SPARE_SIZE;
    growth->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)capacity);
    if (growth->bytes == NULL)
        return -1;
    growth->data = (uint8_t *)PyBytes_AS_STRING(growth->bytes);
    growth->capacity = capacity;
    return 0;
}

/* Space for `extra` more bytes at data + size; NULL when out of memory. */
static inline uint8_t *growth_reserve(Growth *growth, size_t extra) {
    size_t needed = growth->size + extra + GROWTH_SPARE_SIZE;
    if (needed > growth->capacity) {
        size_t capacity = needed + needed / 2 + 256;
        int is_in_bytes = growth_is_in_bytes(growth);
        uint8_t *data = PyMem_RawRealloc(is_in_bytes ? NULL : growth->data, capacity);
        if (data == NULL)
            return NULL;
        if (is_in_bytes)
            memcpy(data, growth->data, growth->size);
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

/* With the GIL if it began in a bytes object. */
static inline void growth_free(Growth *growth) {
    if (!growth_is_in_bytes(growth))
        PyMem_RawFree(growth->data);
    Py_XDECREF(growth->bytes);
    *growth = (Growth){0};
}

static inline PyObject *growth_bytes(const Growth *growth) {
    return PyBytes_FromStringAndSize((const char *)growth->data, (Py_ssize_t)growth->size);
}

/* `growth_bytes` that leaves the buffer empty, and copies only if it has moved. With the GIL. */
static inline PyObject *growth_take_bytes(Growth *growth) {
    if (!growth_is_in_bytes(growth))
        return growth_bytes(growth);
    PyObject *bytes = growth->bytes;
    size_t size = growth->size;
    *growth = (Growth){0};
    /* Sets it to NULL when it fails. */
    _PyBytes_Resize(&bytes, (Py_ssize_t)size);
    return bytes;
}

#endif
