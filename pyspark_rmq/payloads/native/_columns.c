/* pyspark_rmq.payloads.native._columns: bodies of a batch to the buffers of Arrow arrays.
 *
 *     decoder = ColumnDecoder(format, framing, columns, steps, roots, names)
 *     columns, refused = decoder.decode(data, offsets, first, count)
 *
 * The arguments are those that plans.py makes: numbers of 64 bits in native order. Of each column
 * comes (length, null_count, validity, offsets, values), of refused rows their places as int32.
 * The decoders in Python are the specification: what is not refused equals what they return.
 *
 * Buffers of columns are kept from batch to batch.
 */
#include "columns.h"

enum { COLUMN_NUMBERS = 8, STEP_NUMBERS = 8, ROOT_NUMBERS = 3, FORMATS = 4 };

typedef int (*ReadBody)(Plan *plan, const uint8_t *body, size_t size);

static const ReadBody readers[FORMATS] = {read_json, read_msgpack, read_avro, read_protobuf};

typedef struct {
    PyObject_HEAD
    Plan plan;
    ReadBody read_body;
    PyObject *names; /* bytes that columns and steps point into */
    Growth refused;
    int is_busy;
} Decoder;

static int64_t number_at(const int64_t *numbers, size_t row, size_t width, size_t index) {
    int64_t value;
    memcpy(&value, (const uint8_t *)numbers + (row * width + index) * 8, 8);
    return value;
}

static int is_part(int64_t first, int64_t count, size_t size) {
    return first >= 0 && count >= 0 && (uint64_t)first <= size &&
           (uint64_t)count <= size - (uint64_t)first;
}

static int set_columns(Decoder *self, const int64_t *numbers, size_t count, size_t names_size) {
    const uint8_t *names = (const uint8_t *)PyBytes_AsString(self->names);
    Plan *plan = &self->plan;
    plan->columns = PyMem_RawCalloc(count + 1, sizeof *plan->columns);
    if (plan->columns == NULL)
        return -1;
    plan->column_count = count;
    for (size_t row = 0; row < count; row++) {
        int64_t part[COLUMN_NUMBERS];
        for (size_t index = 0; index < COLUMN_NUMBERS; index++)
            part[index] = number_at(numbers, row, COLUMN_NUMBERS, index);
        int children = part[0] == COLUMN_LIST ? 1 : part[0] == COLUMN_MAP ? 2 : (int)part[2];
        /* Children follow, so that there is no circle. */
        if (part[0] < 0 || part[0] >= COLUMN_KINDS || !is_part(part[1], part[2], count) ||
            (part[2] != 0 && (uint64_t)part[1] <= row) || part[2] != children ||
            (part[0] > COLUMN_MAP && part[2] != 0) || part[3] < 0 || part[3] > 38 ||
            part[4] < 0 || part[4] > part[3] || !is_part(part[6], part[7], names_size))
            return 0;
        plan->columns[row] = (Column){
            .kind = (ColumnKind)part[0], .first = (size_t)part[1], .count = (size_t)part[2],
            .precision = (int)part[3], .scale = (int)part[4], .takes_local = part[5] != 0,
            .name = names + part[6], .name_size = (size_t)part[7],
        };
    }
    for (size_t row = 0; row < count; row++)
        if (plan->columns[row].kind == COLUMN_MAP &&
            plan->columns[plan->columns[row].first].kind != COLUMN_STRING)
            return 0;
    return count != 0 && plan->columns[0].kind <= COLUMN_MAP;
}

static int set_steps(Decoder *self, const int64_t *numbers, size_t count, size_t names_size) {
    const uint8_t *names = (const uint8_t *)PyBytes_AsString(self->names);
    Plan *plan = &self->plan;
    plan->steps = PyMem_RawCalloc(count + 1, sizeof *plan->steps);
    if (plan->steps == NULL)
        return -1;
    plan->step_count = count;
    for (size_t row = 0; row < count; row++) {
        int64_t part[STEP_NUMBERS];
        for (size_t index = 0; index < STEP_NUMBERS; index++)
            part[index] = number_at(numbers, row, STEP_NUMBERS, index);
        if (part[1] < -1 || part[1] >= (int64_t)plan->column_count ||
            !is_part(part[2], part[3], count) || !is_part(part[6], part[7], names_size))
            return 0;
        plan->steps[row] = (Step){
            .kind = part[0], .column = part[1], .first = (size_t)part[2], .count = (size_t)part[3],
            .number = part[4], .more = part[5], .name = names + part[6],
            .name_size = (size_t)part[7],
        };
    }
    return self->read_body != read_protobuf || count != 0;
}

static int set_roots(Decoder *self, const int64_t *numbers, size_t count) {
    Plan *plan = &self->plan;
    plan->roots = PyMem_RawCalloc(count + 1, sizeof *plan->roots);
    if (plan->roots == NULL)
        return -1;
    plan->root_count = count;
    for (size_t row = 0; row < count; row++) {
        int64_t reads = number_at(numbers, row, ROOT_NUMBERS, 1);
        int64_t skips = number_at(numbers, row, ROOT_NUMBERS, 2);
        if (!is_part(reads, 1, plan->step_count) || !is_part(skips, 1, plan->step_count))
            return 0;
        plan->roots[row] = (Root){.id = number_at(numbers, row, ROOT_NUMBERS, 0),
                                  .reads = (size_t)reads, .skips = (size_t)skips};
    }
    return 1;
}

static int decoder_set(Decoder *self, const Py_buffer *columns, const Py_buffer *steps,
                       const Py_buffer *roots) {
    size_t names_size = (size_t)PyBytes_Size(self->names);
    int done = set_columns(self, columns->buf, (size_t)columns->len / (8 * COLUMN_NUMBERS),
                           names_size);
    if (done == 1)
        done = set_steps(self, steps->buf, (size_t)steps->len / (8 * STEP_NUMBERS), names_size);
    if (done == 1)
        done = set_roots(self, roots->buf, (size_t)roots->len / (8 * ROOT_NUMBERS));
    if (done < 0)
        PyErr_NoMemory();
    if (done == 0)
        PyErr_SetString(PyExc_ValueError, "not a plan of columns and steps");
    return done == 1 ? 0 : -1;
}

static PyObject *decoder_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    static char *names[] = {"format", "framing", "columns", "steps", "roots", "names", NULL};
    int format, framing;
    Py_buffer columns, steps, roots;
    PyObject *text;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iiy*y*y*S", names, &format, &framing, &columns,
                                     &steps, &roots, &text))
        return NULL;
    Decoder *self = NULL;
    if (format < 0 || format >= FORMATS)
        PyErr_SetString(PyExc_ValueError, "unknown format");
    else
        self = (Decoder *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->read_body = readers[format];
        self->plan.framing = framing;
        self->names = Py_NewRef(text);
        if (decoder_set(self, &columns, &steps, &roots) < 0)
            Py_CLEAR(self);
    }
    PyBuffer_Release(&columns);
    PyBuffer_Release(&steps);
    PyBuffer_Release(&roots);
    return (PyObject *)self;
}

static void decoder_free(PyObject *object) {
    Decoder *self = (Decoder *)object;
    for (size_t index = 0; index < self->plan.column_count; index++) {
        growth_free(&self->plan.columns[index].valid);
        growth_free(&self->plan.columns[index].values);
        growth_free(&self->plan.columns[index].offsets);
    }
    growth_free(&self->refused);
    PyMem_RawFree(self->plan.columns);
    PyMem_RawFree(self->plan.steps);
    PyMem_RawFree(self->plan.roots);
    Py_XDECREF(self->names);
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Empty columns. */
static int plan_begin(Plan *plan) {
    static const int32_t zero;
    plan->no_memory = 0;
    for (size_t index = 0; index < plan->column_count; index++) {
        Column *column = &plan->columns[index];
        column->length = column->null_count = 0;
        column->valid.size = column->values.size = column->offsets.size = 0;
        if (growth_put(&column->offsets, &zero, sizeof zero) < 0)
            return -1;
    }
    return 0;
}

/* 0, -1 when there is no memory, or -2 for offsets that are not in the data. */
static int decode_all(Decoder *self, const Py_buffer *data, const int32_t *offsets,
                      size_t count) {
    Plan *plan = &self->plan;
    const uint8_t *start = data->buf;
    self->refused.size = 0;
    if (plan_begin(plan) < 0)
        return -1;
    for (size_t row = 0; row < count; row++) {
        int32_t bounds[2];
        memcpy(bounds, offsets + row, sizeof bounds);
        if (bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > data->len)
            return -2;
        if (self->read_body(plan, start + bounds[0], (size_t)(bounds[1] - bounds[0])) == 0)
            continue;
        int32_t place = (int32_t)row;
        column_truncate(plan, plan->columns, row);
        if (plan->no_memory || column_null(plan, plan->columns) < 0 ||
            growth_put(&self->refused, &place, sizeof place) < 0)
            return -1;
    }
    return 0;
}

/* A bit for each byte. */
static PyObject *bits_of(const Growth *bytes, size_t count) {
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 7) / 8));
    if (result == NULL)
        return NULL;
    uint8_t *out = (uint8_t *)PyBytes_AsString(result);
    memset(out, 0, (count + 7) / 8);
    for (size_t index = 0; index < count; index++)
        out[index / 8] |= (uint8_t)((bytes->data[index] & 1) << index % 8);
    return result;
}

static PyObject *column_result(const Column *column) {
    int has_offsets = column->kind == COLUMN_LIST || column->kind == COLUMN_MAP ||
                      column->kind == COLUMN_STRING || column->kind == COLUMN_BINARY;
    PyObject *valid = column->null_count == 0 ? Py_NewRef(Py_None)
                                              : bits_of(&column->valid, column->length);
    PyObject *offsets = has_offsets ? growth_bytes(&column->offsets) : Py_NewRef(Py_None);
    PyObject *values = column->kind <= COLUMN_MAP ? Py_NewRef(Py_None)
                       : column->kind == COLUMN_BOOLEAN
                           ? bits_of(&column->values, column->length)
                           : growth_bytes(&column->values);
    if (valid == NULL || offsets == NULL || values == NULL) {
        Py_XDECREF(valid);
        Py_XDECREF(offsets);
        Py_XDECREF(values);
        return NULL;
    }
    return Py_BuildValue("nnNNN", (Py_ssize_t)column->length, (Py_ssize_t)column->null_count,
                         valid, offsets, values);
}

static PyObject *results(const Decoder *self) {
    PyObject *columns = PyList_New((Py_ssize_t)self->plan.column_count);
    if (columns == NULL)
        return NULL;
    for (size_t index = 0; index < self->plan.column_count; index++) {
        PyObject *column = column_result(&self->plan.columns[index]);
        if (column == NULL) {
            Py_DECREF(columns);
            return NULL;
        }
        PyList_SetItem(columns, (Py_ssize_t)index, column);
    }
    PyObject *refused = growth_bytes(&self->refused);
    if (refused == NULL) {
        Py_DECREF(columns);
        return NULL;
    }
    return Py_BuildValue("NN", columns, refused);
}

static PyObject *decode_buffers(Decoder *self, const Py_buffer *data, const Py_buffer *offsets,
                                Py_ssize_t first, Py_ssize_t count) {
    if (first < 0 || count < 0 || count >= offsets->len / 4 || first > offsets->len / 4 - 1 - count) {
        PyErr_SetString(PyExc_ValueError, "offsets have no such rows");
        return NULL;
    }
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "the decoder is in use by another thread");
        return NULL;
    }
    self->is_busy = 1;
    PyThreadState *saved = PyEval_SaveThread();
    int done = decode_all(self, data, (const int32_t *)offsets->buf + first, (size_t)count);
    PyEval_RestoreThread(saved);
    self->is_busy = 0;
    if (done == -1)
        return PyErr_NoMemory();
    if (done == -2) {
        PyErr_SetString(PyExc_ValueError, "offsets are not inside of the data");
        return NULL;
    }
    return results(self);
}

static PyObject *decoder_decode(PyObject *object, PyObject *args) {
    Py_buffer data, offsets;
    Py_ssize_t first, count;
    if (!PyArg_ParseTuple(args, "y*y*nn:decode", &data, &offsets, &first, &count))
        return NULL;
    PyObject *result = decode_buffers((Decoder *)object, &data, &offsets, first, count);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return result;
}

static PyMethodDef decoder_methods[] = {
    {"decode", decoder_decode, METH_VARARGS,
     "decode($self, data, offsets, first, count, /)\n--\n\n"
     "Columns of the bodies, and the rows that were refused."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_new, (void *)decoder_new},
    {Py_tp_dealloc, (void *)decoder_free},
    {Py_tp_methods, (void *)decoder_methods},
    {Py_tp_doc, "Decodes bodies of one format by one plan."},
    {0, NULL},
};

static PyType_Spec decoder_spec = {
    .name = "pyspark_rmq.payloads.native._columns.ColumnDecoder",
    .basicsize = sizeof(Decoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = decoder_slots,
};

static int module_exec(PyObject *module) {
    if (prepare_json() < 0) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *type = PyType_FromModuleAndSpec(module, &decoder_spec, NULL);
    if (type == NULL)
        return -1;
    int done = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return done;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_columns",
    .m_doc = "Bodies to columns; see pyspark_rmq.payloads.native.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__columns(void) { return PyModuleDef_Init(&definition); }
