/* broker_core.codec._native: the batch codec as compiled loops.
 *
 * The same functions, results and errors as record_loops.py, which is the specification. This file
 * holds the module itself: its state, the shared argument and error handling, and the table of
 * functions; the loops are in the native_*.c files, one per task.
 *
 * Rules for all of them: buffers are acquired first, long loops run without the GIL and call no
 * Python, and no input bytes whatsoever may cause an access outside the given buffers.
 */
#include "native_module.h"

#include "native_crc.h"
#include "native_text.h"

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
    if (object == NULL) { /* a later argument was refused */
        PyBuffer_Release(view);
        return 1;
    }
    return PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0 ? 0 : Py_CLEANUP_SUPPORTED;
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

static PyObject *codec_body_crc(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyThreadState *saved = release_gil((uint64_t)view.len);
    uint32_t crc = crc_update(0, view.buf, (size_t)view.len);
    take_gil(saved);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc & CRC_FIELD_MASK);
}

static PyObject *codec_crc_by_every_method(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t found[3];
    size_t count = crc_by_every_method(view.buf, (size_t)view.len, found);
    PyBuffer_Release(&view);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t method = 0; list != NULL && method < count; method++) {
        PyObject *number = PyLong_FromUnsignedLong(found[method]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)method, number);
    }
    return list;
}

#define CONTRACT_FUNCTION(name, text)                                                              \
    {#name, (PyCFunction)(void (*)(void))codec_##name, METH_VARARGS | METH_KEYWORDS, text}

static PyMethodDef functions[] = {
    CONTRACT_FUNCTION(measure_batch, "(bytes of all records, bytes of the largest)."),
    CONTRACT_FUNCTION(encode_batch, "Write rows as records while they fit."),
    {"encode_message", (PyCFunction)(void (*)(void))codec_encode_message, METH_FASTCALL,
     "Write one message as a record if it fits."},
    {"encode_put", (PyCFunction)(void (*)(void))codec_encode_put, METH_FASTCALL,
     "Write one message of a caller as a record if it is plain and fits."},
    CONTRACT_FUNCTION(inspect_run, "Prove every template of a run and lay it out."),
    CONTRACT_FUNCTION(relocate_run, "Copy templates into the log while they fit."),
    CONTRACT_FUNCTION(check_record, "Size of the one valid record at a place."),
    CONTRACT_FUNCTION(scan_records, "Walk records; collect queue units and index entries."),
    CONTRACT_FUNCTION(gather_records, "The records that queue units point to, as bytes."),
    CONTRACT_FUNCTION(decode_columns, "The records that queue units point to, as columns."),
    CONTRACT_FUNCTION(append_index_entries, "Put index entries until the file is full."),
    CONTRACT_FUNCTION(choose_units, "Which of the units read a pull returns."),
    CONTRACT_FUNCTION(cut_wire_runs, "Records of an answer as runs of consecutive offsets."),
    CONTRACT_FUNCTION(find_unusual, "The first record that needs a closer look."),
    CONTRACT_FUNCTION(join_client_batch, "Rows as the body of a batch send."),
    CONTRACT_FUNCTION(split_client_batch, "The body of a batch send as columns."),
    CONTRACT_FUNCTION(column_crcs, "Checksums of the rows of a column."),
    CONTRACT_FUNCTION(list_message_ids, "Offset ids of consecutive records."),
    {"read_plain_send", (PyCFunction)(void (*)(void))codec_read_plain_send, METH_FASTCALL,
     "Fields of a send that needs nothing but to be stored."},
    {"read_sends", (PyCFunction)(void (*)(void))codec_read_sends, METH_FASTCALL,
     "Frames of plain sends as columns."},
    CONTRACT_FUNCTION(join_sent_replies, "The answers to plain sends as one buffer."),
    {"java_hash", codec_java_hash, METH_O, "Java's String.hashCode of UTF-8 text."},
    {"body_crc", codec_body_crc, METH_O, "Checksum of a body as records store it."},
    {"_crc_by_every_method", codec_crc_by_every_method, METH_O,
     "The CRC by each method that this processor has."},
    {NULL, NULL, 0, NULL},
};

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
        PyObject *text = imported("broker_core.codec.record_reasons", names[index]);
        if (text == NULL)
            return -1;
        state->reasons[index + 1] = text;
    }
    return 0;
}

static int module_exec(PyObject *module) {
    CodecState *state = PyModule_GetState(module);
    crc_prepare();
    if (load_reasons(state) < 0)
        return -1;
    state->malformed_batch = imported("broker_core.errors", "MalformedBatch");
    state->malformed_record = imported("broker_core.errors", "MalformedRecord");
    state->corrupt_record = imported("broker_core.errors", "CorruptRecord");
    state->batch_type = imported("broker_core.codec.column_batch", "ColumnBatch");
    state->scan_type = imported("broker_core.codec.record_scan", "Scan");
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
    .m_doc = "The batch codec of record_loops.py as compiled loops.",
    .m_size = sizeof(CodecState),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
