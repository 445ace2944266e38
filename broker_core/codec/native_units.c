/* Which of the queue units that were read a pull returns. */
#include "native_module.h"

static int is_wanted(int32_t code, const uint8_t *codes, size_t count) {
    for (size_t index = 0; index < count; index++) {
        int32_t wanted;
        memcpy(&wanted, codes + 4 * index, 4);
        if (wanted == code)
            return 1;
    }
    return 0;
}

static int add_run(PyObject *runs, Py_ssize_t start, Py_ssize_t end) {
    PyObject *run = Py_BuildValue("(nn)", start, end);
    if (run == NULL)
        return -1;
    int failed = PyList_Append(runs, run);
    Py_DECREF(run);
    return failed;
}

PyObject *codec_choose_units(PyObject *module, PyObject *args, PyObject *keywords) {
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
        int32_t record_size = load_i32(unit + 8);
        int is_taken = 0;
        if (load_i64(unit) < log_start || record_size == PRE_BLANK_SIZE)
            removed = 1;
        else if (codes_object != Py_None &&
                 !is_wanted(load_i32(unit + 16), codes.buf, (size_t)codes.len / 4))
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
