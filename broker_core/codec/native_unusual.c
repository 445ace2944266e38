/* The first of many records that needs a closer look before it may be published. */
#include "native_module.h"
#include "native_record.h"

enum {
    AT_PREPARED_OFFSET = 76, /* with short hosts; records with long ones are unusual anyway */
    UNUSUAL_FLAGS = 0x3C,    /* parts of transactions, long hosts */
};

static int is_unusual(const uint8_t *record, uint32_t size, uint64_t size_max) {
    return size > size_max || (load_u32(record + AT_SYS_FLAG) & UNUSUAL_FLAGS) != 0 ||
           load_u64(record + AT_PREPARED_OFFSET) != 0;
}

/* Where it starts, or -1; `fault` is set when sizes do not add up. */
static int64_t search(const uint8_t *run, size_t at, size_t end, uint64_t size_max, Fault *fault) {
    while (at < end) {
        Reason reason = REASON_NONE;
        int32_t size = 0;
        if (end - at < RECORD_SIZE_MIN)
            reason = REASON_HEADER_CUT;
        else if ((size = load_i32(run + at)) < RECORD_SIZE_MIN)
            reason = REASON_SIZE_TOO_SMALL;
        else if ((size_t)size > end - at)
            reason = REASON_SIZE_PAST_LIMIT;
        if (reason != REASON_NONE) {
            *fault = (Fault){reason, (int64_t)at};
            return -1;
        }
        if (is_unusual(run + at, (uint32_t)size, size_max))
            return (int64_t)at;
        at += (size_t)size;
    }
    return -1;
}

PyObject *codec_find_unusual(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"run", "start", "size_max", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer run;
    int64_t start, size_max;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&:find_unusual", names, &run,
                                     to_bounded, &start, to_bounded, &size_max))
        return NULL;
    PyObject *result = NULL;
    if (!is_range(start, run.len, run.len) || size_max < 0) {
        raise_value_error(state, REASON_BAD_RANGE);
    } else {
        Fault fault = {REASON_NONE, 0};
        PyThreadState *saved = release_gil((uint64_t)(run.len - start));
        int64_t found = search(run.buf, (size_t)start, (size_t)run.len, (uint64_t)size_max, &fault);
        take_gil(saved);
        result = fault.reason == REASON_NONE ? PyLong_FromLongLong(found)
                                             : raise_malformed_record(state, fault);
    }
    PyBuffer_Release(&run);
    return result;
}
