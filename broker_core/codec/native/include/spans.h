/* Log pieces, and finding the records that queue units point to. */
#ifndef RMQ_NATIVE_SPANS_H
#define RMQ_NATIVE_SPANS_H

#include "module.h"
#include "record.h"

typedef struct {
    int64_t position;
    Py_buffer view;
} Span;

typedef struct {
    Span *items; /* sorted by position */
    size_t count;
    size_t recent; /* piece of the previous unit */
} Spans;

/* Acquires all pieces. Returns -1 with an exception set; close in either case. */
int spans_open(PyObject *sequence, Spans *spans);
void spans_close(Spans *spans);

/* The bytes a unit points to. */
Reason spans_find(Spans *spans, const uint8_t *unit, const uint8_t **start);

/* The record a unit points to, checked against the unit and the queue offset it stands for. */
Reason read_unit(const uint8_t *start, const uint8_t *unit, uint64_t queue_offset, int verify,
                 Record *record);

/* Number of units, from the first on, that lie inside the pieces; `fault` gets why the next does
 * not. `total_size` is the sum of their record sizes. */
size_t count_found_units(Spans *spans, const uint8_t *units, size_t unit_count,
                         uint64_t *total_size, Fault *fault);

static inline int64_t unit_position(const uint8_t *unit) { return load_i64(unit); }
static inline int32_t unit_size(const uint8_t *unit) {
    return load_i32(unit + UNIT_RECORD_SIZE_AT);
}

#endif
