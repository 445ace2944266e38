/* broker_core.codec.native._native: the compiled functions of the codec.
 *
 * The files of broker_core/codec/reference are the specification: same functions, results and
 * errors. This file holds the module: its state, argument and error handling. Each other file has
 * its functions and, at its end, the table of those that Python calls.
 *
 * Rules for all of them: buffers are acquired first, long loops run without the GIL and call no
 * Python, and no input may cause an access outside the given buffers.
 */
#include "module.h"

#include "crc.h"

enum { GIL_RELEASE_SIZE_MIN = 32 * 1024 };

PyThreadState *release_gil(uint64_t work) {
    return work > GIL_RELEASE_SIZE_MIN ? PyEval_SaveThread() : NULL;
}

void take_gil(PyThreadState *saved) {
    if (saved != NULL)
        PyEval_RestoreThread(saved);
}

static PyObject *raise_new(PyObject *type, PyObject *error) {
    if (error != NULL) {
        PyErr_SetObject(type, error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *raise_malformed_batch(CodecState *state, Fault fault) {
    return raise_new(state->malformed_batch,
                     PyObject_CallFunction(state->malformed_batch, "LO", (long long)fault.where,
                                           state->reasons[fault.reason]));
}

PyObject *raise_malformed_record(CodecState *state, Fault fault) {
    return raise_new(state->malformed_record,
                     PyObject_CallFunction(state->malformed_record, "LO", (long long)fault.where,
                                           state->reasons[fault.reason]));
}

PyObject *raise_corrupt_record(CodecState *state, Fault fault) {
    if (fault.reason == REASON_NO_MEMORY)
        return PyErr_NoMemory();
    return raise_new(state->corrupt_record,
                     PyObject_CallFunction(state->corrupt_record, "sLO", "",
                                           (long long)fault.where, state->reasons[fault.reason]));
}

PyObject *raise_value_error(CodecState *state, Reason reason) {
    PyErr_SetObject(PyExc_ValueError, state->reasons[reason]);
    return NULL;
}

int number_in_range(PyObject *object, int64_t min, int64_t max, int64_t *value) {
    int overflow = 0;
    *value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (*value == -1 && PyErr_Occurred())
        return -1;
    return overflow == 0 && *value >= min && *value <= max;
}

int to_bounded(PyObject *object, void *int64) {
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && PyErr_Occurred())
        return 0;
    *(int64_t *)int64 = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : value;
    return 1;
}

int to_int64(PyObject *object, void *int64) {
    int in_range = number_in_range(object, INT64_MIN, INT64_MAX, int64);
    if (in_range == 0)
        PyErr_SetString(PyExc_OverflowError, "integer exceeds 64 bits");
    return in_range == 1;
}

int to_writable(PyObject *object, void *view) {
    if (object == NULL) { /* clean-up: a later argument was rejected */
        PyBuffer_Release(view);
        return 1;
    }
    return PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0 ? 0 : Py_CLEANUP_SUPPORTED;
}

static PyObject *imported(const char *module_name, const char *name) {
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return NULL;
    PyObject *object = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return object;
}

static int load_reasons(CodecState *state) {
#define REASON_NAME(name) #name,
    static const char *const names[] = {FOR_EACH_REASON(REASON_NAME)};
#undef REASON_NAME
    state->reasons[REASON_NONE] = PyUnicode_FromString("");
    if (state->reasons[REASON_NONE] == NULL)
        return -1;
    for (int index = 0; index < REASON_COUNT - 1; index++) {
        PyObject *text = imported("broker_core.codec.records.record_reasons", names[index]);
        if (text == NULL)
            return -1;
        state->reasons[index + 1] = text;
    }
    return 0;
}

static int add_functions(PyObject *module) {
    PyMethodDef *const tables[] = {
        block_functions,
        client_batch_functions,
        crc_functions,
        decode_functions,
        encode_functions,
        index_functions,
        plain_send_functions,
        run_functions,
        scan_functions,
        send_burst_functions,
        spans_functions,
        text_functions,
    };
    for (size_t index = 0; index < sizeof tables / sizeof tables[0]; index++)
        if (PyModule_AddFunctions(module, tables[index]) < 0)
            return -1;
    return 0;
}

static int module_exec(PyObject *module) {
    CodecState *state = PyModule_GetState(module);
    crc_prepare();
    if (add_functions(module) < 0)
        return -1;
    if (load_reasons(state) < 0)
        return -1;
    state->malformed_batch = imported("broker_core.errors", "MalformedBatch");
    state->malformed_record = imported("broker_core.errors", "MalformedRecord");
    state->corrupt_record = imported("broker_core.errors", "CorruptRecord");
    state->batch_type = imported("broker_core.codec.records.column_batch", "ColumnBatch");
    state->scan_type = imported("broker_core.codec.records.record_scan", "Scan");
    state->block_type = PyType_FromModuleAndSpec(module, &block_type_spec, NULL);
    if (state->malformed_batch == NULL || state->malformed_record == NULL ||
        state->corrupt_record == NULL || state->batch_type == NULL || state->scan_type == NULL ||
        state->block_type == NULL)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    CodecState *state = PyModule_GetState(module);
    if (state == NULL)
        return 0;
    for (int index = 0; index < REASON_COUNT; index++)
        Py_VISIT(state->reasons[index]);
    Py_VISIT(state->malformed_batch);
    Py_VISIT(state->malformed_record);
    Py_VISIT(state->corrupt_record);
    Py_VISIT(state->batch_type);
    Py_VISIT(state->scan_type);
    Py_VISIT(state->block_type);
    return 0;
}

static int module_clear(PyObject *module) {
    CodecState *state = PyModule_GetState(module);
    if (state == NULL)
        return 0;
    for (int index = 0; index < REASON_COUNT; index++)
        Py_CLEAR(state->reasons[index]);
    Py_CLEAR(state->malformed_batch);
    Py_CLEAR(state->malformed_record);
    Py_CLEAR(state->corrupt_record);
    Py_CLEAR(state->batch_type);
    Py_CLEAR(state->scan_type);
    Py_CLEAR(state->block_type);
    return 0;
}

static void module_free(void *module) {
    CodecState *state = PyModule_GetState(module);
    module_clear(module);
    if (state != NULL)
        pool_clear(&state->pool);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Compiled functions of the codec; see broker_core.codec.native.",
    .m_size = sizeof(CodecState),
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
