/* Columns -> the body of a batch send, for the rows of one queue. */
#include "native_batch.h"
#include "native_growth.h"

enum { ITEM_SIZE_MIN = 22 };

static uint8_t *put(uint8_t *at, const void *bytes, size_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

static uint8_t *put_named(uint8_t *at, const char *name, Slice value) {
    if (value.size == 0)
        return at;
    at = put(put(at, name, 5), value.data, value.size);
    *at++ = 2;
    return at;
}

static int put_item(Growth *out, const Batch *batch, const Row *row) {
    uint32_t size = ITEM_SIZE_MIN + (uint32_t)row->body.size + row->text_size;
    uint8_t *at = growth_reserve(out, size);
    if (at == NULL)
        return -1;
    store_u32(at, size);
    memset(at + 4, 0, 8);
    store_u32(at + 12, batch->flag);
    store_u32(at + 16, (uint32_t)row->body.size);
    at += 20;
    if (row->body.size != 0)
        at = put(at, row->body.data, row->body.size);
    store_u16(at, (uint16_t)row->text_size);
    at = put_named(put_named(at + 2, "TAGS\x01", row->tags), "KEYS\x01", row->keys);
    if (row->properties.size != 0)
        at = put(at, row->properties.data, row->properties.size);
    if (row->closes_properties)
        *at = 2;
    out->size += size;
    return 0;
}

/* Rows from `first` on while they are good and fit; returns the first row not looked at. */
static int64_t join(const Batch *batch, int64_t first, int64_t queue, int64_t size_max,
                    int64_t *count, Growth *out, Fault *fault) {
    int64_t number = first;
    for (; number < batch->count; number++) {
        Row row;
        fault->reason = batch_row(batch, (size_t)number, &row);
        fault->where = number;
        if (fault->reason != REASON_NONE)
            break;
        if (queue >= 0 && (int64_t)row.queue != queue)
            continue;
        int64_t size = ITEM_SIZE_MIN + (int64_t)row.body.size + row.text_size;
        if (*count != 0 && (int64_t)out->size + size > size_max)
            break;
        if (put_item(out, batch, &row) < 0) {
            fault->reason = REASON_NO_MEMORY;
            break;
        }
        (*count)++;
    }
    return number;
}

PyObject *codec_join_client_batch(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"batch", "first_row", "queue", "size_max", NULL};
    CodecState *state = PyModule_GetState(module);
    PyObject *object, *result = NULL;
    int64_t first_row, queue, size_max;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO&O&O&:join_client_batch", names, &object,
                                     to_bounded, &first_row, to_bounded, &queue, to_bounded,
                                     &size_max))
        return NULL;
    Batch batch;
    Growth out = {0};
    if (batch_open(state, object, &batch) == 0) {
        if (first_row < 0 || first_row > batch.count) {
            raise_value_error(state, REASON_BAD_FIRST_ROW);
        } else {
            Fault fault = {REASON_NONE, 0};
            int64_t count = 0;
            PyThreadState *saved = release_gil(batch_work(&batch));
            int64_t next = join(&batch, first_row, queue, size_max, &count, &out, &fault);
            take_gil(saved);
            if (fault.reason == REASON_NO_MEMORY)
                PyErr_NoMemory();
            else if (fault.reason != REASON_NONE)
                raise_malformed_batch(state, fault);
            else
                result = Py_BuildValue("(LLN)", (long long)next, (long long)count,
                                       growth_bytes(&out));
        }
    }
    growth_free(&out);
    batch_close(&batch);
    return result;
}
