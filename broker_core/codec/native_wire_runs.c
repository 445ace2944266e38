/* Stored records as an answer carries them, cut into runs of consecutive queue offsets. */
#include "native_growth.h"
#include "native_record.h"

/* A run of records gets positions of its own: its first queue offset (its low 38 bits), times the
 * size that no record exceeds, so that neighbouring runs of one queue never overlap. */
enum { PLACE_SHIFT = 24 };
#define PLACE_MASK ((1ULL << 38) - 1)

typedef struct {
    int64_t first_offset, count;
    size_t begin;
    Growth units;
} Run;

static int add_unit(Run *run, size_t at, uint32_t size) {
    uint8_t *unit = growth_reserve(&run->units, UNIT_SIZE);
    if (unit == NULL)
        return -1;
    store_u64(unit, (((uint64_t)run->first_offset & PLACE_MASK) << PLACE_SHIFT) +
                        (at - run->begin));
    store_u32(unit + 8, size);
    store_u64(unit + 12, 0);
    run->units.size += UNIT_SIZE;
    run->count++;
    return 0;
}

/* Puts a run that has records into the list and makes it empty. */
static int end_run(PyObject *runs, Run *run, size_t end) {
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
    if ((size_t)found > left || found >= 1 << PLACE_SHIFT)
        return REASON_SIZE_PAST_LIMIT;
    *size = (uint32_t)found;
    return REASON_NONE;
}

static int cut(CodecState *state, const Py_buffer *data, int64_t start, int64_t until, Run *run,
               PyObject *runs) {
    const uint8_t *bytes = data->buf;
    size_t end = (size_t)data->len, at = 0;
    int64_t expected = start;
    while (at < end) {
        uint32_t size;
        Reason reason = record_size_at(bytes + at, end - at, &size);
        int64_t offset = reason == REASON_NONE ? load_i64(bytes + at + AT_QUEUE_OFFSET) : 0;
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

PyObject *codec_cut_wire_runs(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "start", "until", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer data;
    int64_t start, until;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&:cut_wire_runs", names, &data,
                                     to_bounded, &start, to_bounded, &until))
        return NULL;
    PyObject *runs = PyList_New(0);
    Run run = {0};
    if (runs != NULL && cut(state, &data, start, until, &run, runs) < 0)
        Py_CLEAR(runs);
    growth_free(&run.units);
    PyBuffer_Release(&data);
    return runs;
}
