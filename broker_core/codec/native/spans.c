/* Finding records by queue unit (gather_records, adjacent_runs), selecting the units of a pull
 * (choose_units), and cutting a pull response into runs (cut_wire_runs).
 */
#include "spans.h"

#include "growth.h"

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
    if (load_u64(start + QUEUE_OFFSET_AT) != queue_offset)
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
 * again, because they may be in shared memory that changes; `room` limits what is written. */
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

static PyObject *codec_gather_records(PyObject *module, PyObject *args, PyObject *keywords) {
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

static int add_run(PyObject *runs, Py_ssize_t start, Py_ssize_t end) {
    PyObject *run = Py_BuildValue("(nn)", start, end);
    if (run == NULL)
        return -1;
    int failed = PyList_Append(runs, run);
    Py_DECREF(run);
    return failed;
}

static PyObject *codec_adjacent_runs(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"units", "count_max", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer units;
    int64_t count_max;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&:adjacent_runs", names, &units,
                                     to_bounded, &count_max))
        return NULL;
    PyObject *runs = NULL;
    if (units.len % UNIT_SIZE != 0) {
        raise_value_error(state, REASON_BAD_UNITS);
        goto done;
    }
    runs = PyList_New(0);
    if (runs == NULL)
        goto done;
    const uint8_t *unit = units.buf, *end = unit + units.len;
    int64_t count = 0;
    while (unit < end) {
        int64_t first = unit_position(unit), next = first;
        for (; unit < end && unit_position(unit) == next; unit += UNIT_SIZE) {
            int32_t size = unit_size(unit);
            if (next < 0 || size <= 0 || next > INT64_MAX - size)
                goto refused;
            next += size;
        }
        if (++count > count_max)
            goto refused;
        if (add_run(runs, (Py_ssize_t)first, (Py_ssize_t)(next - first)) < 0) {
            Py_CLEAR(runs);
            goto done;
        }
    }
    goto done;
refused:
    PyList_SetSlice(runs, 0, PyList_Size(runs), NULL);
done:
    PyBuffer_Release(&units);
    return runs;
}

static int is_wanted(int32_t code, const uint8_t *codes, size_t count) {
    for (size_t index = 0; index < count; index++) {
        int32_t wanted;
        memcpy(&wanted, codes + 4 * index, 4);
        if (wanted == code)
            return 1;
    }
    return 0;
}

static PyObject *codec_choose_units(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"units", "log_start", "count_max", "size_max", "codes", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer units, codes = {0};
    int64_t log_start, count_max, size_max;
    PyObject *codes_object;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&O&O:choose_units", names, &units,
                                     to_bounded, &log_start, to_bounded, &count_max, to_bounded,
                                     &size_max, &codes_object))
        return NULL;
    PyObject *runs = NULL, *result = NULL;
    if (codes_object != Py_None && PyObject_GetBuffer(codes_object, &codes, PyBUF_SIMPLE) < 0)
        goto done;
    if (units.len % UNIT_SIZE != 0) {
        raise_value_error(state, REASON_BAD_UNITS);
        goto done;
    }
    runs = PyList_New(0);
    if (runs == NULL)
        goto done;
    Py_ssize_t visited = 0, start = -1;
    int64_t count = 0, size = 0;
    int filtered = 0, removed = 0;
    for (const uint8_t *unit = units.buf; visited < units.len / UNIT_SIZE; unit += UNIT_SIZE) {
        int32_t record_size = unit_size(unit);
        int is_taken = 0;
        if (unit_position(unit) < log_start || record_size == PRE_BLANK_SIZE)
            removed = 1;
        else if (codes_object != Py_None &&
                 !is_wanted(load_i32(unit + UNIT_TAGS_CODE_AT + 4), codes.buf,
                             (size_t)codes.len / 4))
            filtered = 1;
        else {
            if (count != 0 && (count >= count_max || size + record_size > size_max))
                break;
            is_taken = 1;
            count++;
            size += record_size;
        }
        if (is_taken && start < 0)
            start = visited;
        if (!is_taken && start >= 0) {
            if (add_run(runs, start, visited) < 0)
                goto done;
            start = -1;
        }
        visited++;
    }
    if (start >= 0 && add_run(runs, start, visited) < 0)
        goto done;
    result = Py_BuildValue("(OnOO)", runs, visited, filtered ? Py_True : Py_False,
                           removed ? Py_True : Py_False);
done:
    Py_XDECREF(runs);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&units);
    return result;
}

/* Positions of a run of records: its first queue offset (the low bits), times a size that no record
 * exceeds, so that neighbouring runs of one queue never overlap. */
#define WIRE_PLACE_MASK ((1ULL << WIRE_PLACE_BITS) - 1)

typedef struct {
    int64_t first_offset, count;
    size_t begin;
    Growth units;
} WireRun;

static int add_unit(WireRun *run, size_t at, uint32_t size) {
    uint8_t *unit = growth_reserve(&run->units, UNIT_SIZE);
    if (unit == NULL)
        return -1;
    store_u64(unit, (((uint64_t)run->first_offset & WIRE_PLACE_MASK) << WIRE_PLACE_SHIFT) +
                        (at - run->begin));
    store_u32(unit + UNIT_RECORD_SIZE_AT, size);
    store_u64(unit + UNIT_TAGS_CODE_AT, 0);
    run->units.size += UNIT_SIZE;
    run->count++;
    return 0;
}

/* Appends a run that has records to the list and clears it. */
static int end_run(PyObject *runs, WireRun *run, size_t end) {
    if (run->count == 0)
        return 0;
    PyObject *entry =
        Py_BuildValue("(LLnnN)", (long long)run->first_offset, (long long)run->count,
                      (Py_ssize_t)run->begin, (Py_ssize_t)end, growth_bytes(&run->units));
    if (entry == NULL)
        return -1;
    int failed = PyList_Append(runs, entry);
    Py_DECREF(entry);
    run->count = 0;
    run->units.size = 0;
    return failed;
}

static Reason record_size_at(const uint8_t *at, size_t left, uint32_t *size) {
    if (left < RECORD_SIZE_MIN)
        return REASON_HEADER_CUT;
    int32_t found = load_i32(at);
    if (found < RECORD_SIZE_MIN)
        return REASON_SIZE_TOO_SMALL;
    if ((size_t)found > left || found >= 1 << WIRE_PLACE_SHIFT)
        return REASON_SIZE_PAST_LIMIT;
    *size = (uint32_t)found;
    return REASON_NONE;
}

static int cut(CodecState *state, const Py_buffer *data, int64_t start, int64_t until, WireRun *run,
               PyObject *runs) {
    const uint8_t *bytes = data->buf;
    size_t end = (size_t)data->len, at = 0;
    int64_t expected = start;
    while (at < end) {
        uint32_t size;
        Reason reason = record_size_at(bytes + at, end - at, &size);
        int64_t offset = reason == REASON_NONE ? load_i64(bytes + at + QUEUE_OFFSET_AT) : 0;
        if (reason == REASON_NONE && offset < expected)
            reason = REASON_QUEUE_GAP;
        if (reason != REASON_NONE) {
            raise_malformed_record(state, (Fault){reason, (int64_t)at});
            return -1;
        }
        if (offset >= until)
            break;
        if (run->count == 0 || offset != expected) {
            if (end_run(runs, run, at) < 0)
                return -1;
            run->first_offset = offset;
            run->begin = at;
        }
        if (add_unit(run, at, size) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        expected = offset + 1;
        at += size;
    }
    return end_run(runs, run, at);
}

static PyObject *codec_cut_wire_runs(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "start", "until", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer data;
    int64_t start, until;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&:cut_wire_runs", names, &data,
                                     to_bounded, &start, to_bounded, &until))
        return NULL;
    PyObject *runs = PyList_New(0);
    WireRun run = {0};
    if (runs != NULL && cut(state, &data, start, until, &run, runs) < 0)
        Py_CLEAR(runs);
    growth_free(&run.units);
    PyBuffer_Release(&data);
    return runs;
}

PyMethodDef spans_functions[] = {
    NATIVE_FUNCTION(
        adjacent_runs, NAMED_ARGUMENTS,
        "units, count_max",
        "Log ranges of records that lie one after the other."),
    NATIVE_FUNCTION(
        choose_units, NAMED_ARGUMENTS,
        "units, log_start, count_max, size_max, codes",
        "Which of the units read a pull returns."),
    NATIVE_FUNCTION(
        cut_wire_runs, NAMED_ARGUMENTS,
        "data, start, until",
        "Records of a pull response as runs of consecutive offsets."),
    NATIVE_FUNCTION(
        gather_records, NAMED_ARGUMENTS,
        "spans, units, queue_offset, verify",
        "The records that queue units point to, as bytes."),
    {NULL, NULL, 0, NULL},
};
