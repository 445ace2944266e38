/* Finding records by queue unit, and gather_records. */
#include "native_spans.h"

int spans_open(PyObject *sequence, Spans *spans) {
    memset(spans, 0, sizeof *spans);
    PyObject *pairs = PySequence_Tuple(sequence);
    if (pairs == NULL)
        return -1;
    int result = 0;
    size_t count = (size_t)PyTuple_Size(pairs);
    spans->items = PyMem_Calloc(count == 0 ? 1 : count, sizeof(Span));
    if (spans->items == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    while (result == 0 && spans->count < count) {
        Span *span = &spans->items[spans->count];
        PyObject *pair = PySequence_Tuple(PyTuple_GetItem(pairs, (Py_ssize_t)spans->count));
        if (pair == NULL || !PyArg_ParseTuple(pair, "O&y*", to_bounded, &span->position,
                                              &span->view))
            result = -1;
        else
            spans->count++;
        Py_XDECREF(pair);
    }
    Py_DECREF(pairs);
    return result;
}

void spans_close(Spans *spans) {
    for (size_t index = 0; index < spans->count; index++)
        PyBuffer_Release(&spans->items[index].view);
    PyMem_Free(spans->items);
    spans->items = NULL;
}

static inline int is_recent(const Spans *spans, int64_t position) {
    size_t next = spans->recent + 1;
    return spans->recent < spans->count && spans->items[spans->recent].position <= position &&
           (next == spans->count || spans->items[next].position > position);
}

Reason spans_find(Spans *spans, const uint8_t *unit, const uint8_t **start) {
    int64_t position = unit_position(unit);
    int32_t size = unit_size(unit);
    if (size == PRE_BLANK_SIZE)
        return REASON_PRE_BLANK_UNIT;
    if (position < 0 || size <= 0)
        return REASON_BAD_UNIT;
    if (!is_recent(spans, position)) {
        /* The last piece that starts at or before the position. */
        size_t low = 0, high = spans->count;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (position < spans->items[middle].position)
                high = middle;
            else
                low = middle + 1;
        }
        if (low == 0)
            return REASON_NOT_IN_SPANS;
        spans->recent = low - 1;
    }
    const Span *span = &spans->items[spans->recent];
    uint64_t inside = (uint64_t)position - (uint64_t)span->position;
    uint64_t span_size = (uint64_t)span->view.len;
    if (inside > span_size || (uint64_t)size > span_size - inside)
        return REASON_NOT_IN_SPANS;
    *start = (const uint8_t *)span->view.buf + inside;
    return REASON_NONE;
}

Reason read_unit(const uint8_t *start, const uint8_t *unit, uint64_t queue_offset, int verify,
                 Record *record) {
    int32_t size = unit_size(unit);
    Reason reason = record_parse(start, (size_t)size, record);
    if (reason != REASON_NONE)
        return reason;
    if (!(verify & ELSEWHERE) && record_position(record) != (uint64_t)unit_position(unit))
        return REASON_BAD_POSITION;
    int level = verify & ~ELSEWHERE;
    if (level && (reason = record_verify(record, level)) != REASON_NONE)
        return reason;
    if (record->size != (uint32_t)size)
        return REASON_UNIT_SIZE_DISAGREES;
    if (load_u64(start + AT_QUEUE_OFFSET) != queue_offset)
        return REASON_QUEUE_OFFSET_DISAGREES;
    return REASON_NONE;
}

size_t count_found_units(Spans *spans, const uint8_t *units, size_t unit_count,
                         uint64_t *total_size, Fault *fault) {
    *total_size = 0;
    for (size_t index = 0; index < unit_count; index++, units += UNIT_SIZE) {
        const uint8_t *start;
        Reason reason = spans_find(spans, units, &start);
        if (reason != REASON_NONE) {
            *fault = (Fault){reason, unit_position(units)};
            return index;
        }
        *total_size += (uint32_t)unit_size(units);
    }
    return unit_count;
}

/* Copies (and with `verify` checks) the records of `count` units into `out`. Units are looked up
 * again: they may lie in memory that changes, and `room` bounds what may be written. */
static Fault copy_records(Spans *spans, const uint8_t *units, size_t count, uint64_t queue_offset,
                          int verify, uint8_t *out, uint64_t room) {
    for (size_t index = 0; index < count; index++, units += UNIT_SIZE) {
        uint8_t unit[UNIT_SIZE];
        memcpy(unit, units, UNIT_SIZE);
        const uint8_t *start = NULL;
        Record record;
        Reason reason = spans_find(spans, unit, &start);
        if (reason == REASON_NONE && verify)
            reason = read_unit(start, unit, queue_offset + index, verify, &record);
        if (reason == REASON_NONE && (uint32_t)unit_size(unit) > room)
            reason = REASON_UNIT_SIZE_DISAGREES;
        if (reason != REASON_NONE)
            return (Fault){reason, unit_position(unit)};
        memcpy(out, start, (size_t)unit_size(unit));
        out += unit_size(unit);
        room -= (uint32_t)unit_size(unit);
    }
    return (Fault){REASON_NONE, 0};
}

static PyObject *gather(CodecState *state, Spans *spans, const Py_buffer *units,
                        uint64_t queue_offset, int verify) {
    Fault missing = {REASON_NONE, 0};
    uint64_t total_size;
    size_t found = count_found_units(spans, units->buf, (size_t)units->len / UNIT_SIZE, &total_size,
                                     &missing);
    if (total_size > PY_SSIZE_T_MAX / 2)
        return PyErr_NoMemory();
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total_size);
    if (records == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(records);
    PyThreadState *saved = release_gil(total_size);
    Fault fault = copy_records(spans, units->buf, found, queue_offset, verify, out, total_size);
    take_gil(saved);
    if (fault.reason == REASON_NONE)
        fault = missing;
    if (fault.reason != REASON_NONE) {
        Py_DECREF(records);
        return raise_corrupt_record(state, fault);
    }
    return records;
}

PyObject *codec_gather_records(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"spans", "units", "queue_offset", "verify", NULL};
    CodecState *state = PyModule_GetState(module);
    PyObject *sequence;
    Py_buffer units;
    int64_t queue_offset;
    int verify;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oy*O&i:gather_records", names, &sequence,
                                     &units, to_bounded, &queue_offset, &verify))
        return NULL;
    Spans spans;
    PyObject *result = NULL;
    if (spans_open(sequence, &spans) == 0)
        result = units.len % UNIT_SIZE != 0
                     ? raise_value_error(state, REASON_BAD_UNITS)
                     : gather(state, &spans, &units, (uint64_t)queue_offset, verify);
    spans_close(&spans);
    PyBuffer_Release(&units);
    return result;
}
