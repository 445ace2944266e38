/* The body of a batch send: columns -> body, body -> columns, and the ids of its records.
 *
 *     size i32 | magic i32 | crc i32 | flag i32 | body length i32, body | text length i16, text
 */
#include "batch.h"
#include "growth.h"

typedef struct {
    const uint8_t *body, *text;
    uint32_t size, body_size, text_size, flag;
} Item;

static Reason item_open(const uint8_t *at, size_t left, Item *item) {
    if (left < 8)
        return REASON_HEADER_CUT;
    int32_t size = load_i32(at);
    if (size < BATCH_ITEM_SIZE_MIN)
        return REASON_SIZE_TOO_SMALL;
    if ((size_t)size > left)
        return REASON_SIZE_PAST_LIMIT;
    int32_t body_size = load_i32(at + BATCH_ITEM_BODY_LENGTH_AT);
    if (body_size < 0)
        return REASON_NEGATIVE_BODY;
    if (body_size > size - BATCH_ITEM_SIZE_MIN)
        return REASON_LENGTHS_DISAGREE;
    int16_t text_size = (int16_t)load_u16(at + BATCH_ITEM_BODY_AT + body_size);
    if (text_size < 0)
        return REASON_NEGATIVE_PROPERTIES;
    if (size != BATCH_ITEM_SIZE_MIN + body_size + text_size)
        return REASON_LENGTHS_DISAGREE;
    *item = (Item){.body = at + BATCH_ITEM_BODY_AT,
                   .text = at + BATCH_ITEM_BODY_AT + body_size + 2,
                   .size = (uint32_t)size,
                   .body_size = (uint32_t)body_size,
                   .text_size = (uint32_t)text_size,
                   .flag = load_u32(at + BATCH_ITEM_FLAG_AT)};
    return REASON_NONE;
}

typedef struct {
    Growth bodies, body_offsets, texts, text_offsets, flags;
    int64_t count;
    int names_timer;
} Columns;

/* Whether TIMER_DE, the beginning of properties that set a time, is in a text. Looks for its M,
 * which the usual texts do not have. */
static int has_timer_name(const uint8_t *text, size_t size) {
    static const char name[] = "TIMER_DE";
    enum { NAME_SIZE = sizeof name - 1, M_AT = 2 };
    const uint8_t *at = text, *end = text + size;
    while ((size_t)(end - at) >= NAME_SIZE &&
           (at = memchr(at + M_AT, 'M', (size_t)(end - at) - NAME_SIZE + 1)) != NULL) {
        if (memcmp(at - M_AT, name, NAME_SIZE) == 0)
            return 1;
        at -= M_AT - 1;
    }
    return 0;
}

static int put_item(Columns *columns, const Item *item, const uint8_t *suffix, size_t suffix_size) {
    if (growth_put(&columns->bodies, item->body, item->body_size) < 0 ||
        growth_put(&columns->texts, item->text, item->text_size) < 0)
        return -1;
    int is_open = item->text_size != 0 && item->text[item->text_size - 1] != 2;
    if (suffix_size != 0 && ((is_open && growth_put(&columns->texts, "\x02", 1) < 0) ||
                             growth_put(&columns->texts, suffix, suffix_size) < 0))
        return -1;
    columns->count++;
    return growth_put(&columns->flags, &item->flag, 4) < 0 ||
                   growth_put_number(&columns->body_offsets, (int64_t)columns->bodies.size) < 0 ||
                   growth_put_number(&columns->text_offsets, (int64_t)columns->texts.size) < 0
               ? -1
               : 0;
}

static Fault split(const uint8_t *data, size_t size, const uint8_t *suffix, size_t suffix_size,
                   Columns *columns) {
    if (growth_put_number(&columns->body_offsets, 0) < 0 ||
        growth_put_number(&columns->text_offsets, 0) < 0)
        return (Fault){REASON_NO_MEMORY, 0};
    for (size_t at = 0; at < size;) {
        Item item;
        Reason reason = item_open(data + at, size - at, &item);
        if (reason != REASON_NONE)
            return (Fault){reason, columns->count};
        if (put_item(columns, &item, suffix, suffix_size) < 0)
            return (Fault){REASON_NO_MEMORY, 0};
        columns->names_timer |= has_timer_name(item.text, item.text_size);
        at += item.size;
    }
    return (Fault){REASON_NONE, 0};
}

static PyObject *codec_split_client_batch(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "suffix", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer data, suffix;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*y*:split_client_batch", names, &data,
                                     &suffix))
        return NULL;
    Columns columns = {0};
    PyObject *result = NULL;
    if (growth_begin_in_bytes(&columns.bodies, (size_t)data.len) < 0) {
        PyBuffer_Release(&data);
        PyBuffer_Release(&suffix);
        return NULL;
    }
    PyThreadState *saved = release_gil((uint64_t)data.len);
    Fault fault = split(data.buf, (size_t)data.len, suffix.buf, (size_t)suffix.len, &columns);
    take_gil(saved);
    if (fault.reason == REASON_NONE)
        result = Py_BuildValue("(LNNNNNN)", (long long)columns.count, growth_bytes(&columns.flags),
                               growth_take_bytes(&columns.bodies),
                               growth_bytes(&columns.body_offsets), growth_bytes(&columns.texts),
                               growth_bytes(&columns.text_offsets),
                               PyBool_FromLong(columns.names_timer));
    else if (fault.reason == REASON_NO_MEMORY)
        PyErr_NoMemory();
    else
        raise_malformed_batch(state, fault);
    growth_free(&columns.bodies);
    growth_free(&columns.body_offsets);
    growth_free(&columns.texts);
    growth_free(&columns.text_offsets);
    growth_free(&columns.flags);
    PyBuffer_Release(&data);
    PyBuffer_Release(&suffix);
    return result;
}

static PyObject *codec_list_message_ids(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "start", "count", "host", "position", NULL};
    CodecState *state = PyModule_GetState(module);
    Py_buffer data, host;
    int64_t start, count, position;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O&O&y*O&:list_message_ids", names, &data,
                                     to_bounded, &start, to_bounded, &count, &host, to_int64,
                                     &position))
        return NULL;
    PyObject *result = NULL;
    size_t id_size = 2 * ((size_t)host.len + 8);
    if (!is_range(start, data.len, data.len) || count < 1 || count > data.len ||
        (host.len != IPV4_HOST_SIZE && host.len != IPV6_HOST_SIZE)) {
        raise_value_error(state, host.len != IPV4_HOST_SIZE && host.len != IPV6_HOST_SIZE
                                     ? REASON_BAD_HOST
                                     : REASON_BAD_RANGE);
        goto done;
    }
    result = PyUnicode_New((Py_ssize_t)(count * (int64_t)(id_size + 1) - 1), 127);
    if (result == NULL)
        goto done;
    uint8_t *at = PyUnicode_1BYTE_DATA(result);
    for (int64_t row = 0; row < count; row++) {
        int32_t size = start + 4 <= data.len ? load_i32((uint8_t *)data.buf + start) : 0;
        if (size < RECORD_SIZE_MIN || size > data.len - start) {
            Py_CLEAR(result);
            raise_value_error(state, REASON_BAD_RANGE);
            goto done;
        }
        uint8_t place[8];
        store_u64(place, (uint64_t)position);
        if (row != 0)
            *at++ = ',';
        at = put_hex(put_hex(at, host.buf, (size_t)host.len), place, 8);
        start += size;
        position += size;
    }
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&host);
    return result;
}

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

static int put_row(Growth *out, const Batch *batch, const Row *row) {
    uint32_t size = BATCH_ITEM_SIZE_MIN + (uint32_t)row->body.size + row->text_size;
    uint8_t *at = growth_reserve(out, size);
    if (at == NULL)
        return -1;
    store_u32(at, size);
    memset(at + BATCH_ITEM_MAGIC_AT, 0, BATCH_ITEM_FLAG_AT - BATCH_ITEM_MAGIC_AT);
    store_u32(at + BATCH_ITEM_FLAG_AT, batch->flag);
    store_u32(at + BATCH_ITEM_BODY_LENGTH_AT, (uint32_t)row->body.size);
    at += BATCH_ITEM_BODY_AT;
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

/* Rows from `first` on while they are valid and fit; returns the first row not visited. */
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
        int64_t size = BATCH_ITEM_SIZE_MIN + (int64_t)row.body.size + row.text_size;
        if (*count != 0 && (int64_t)out->size + size > size_max)
            break;
        if (put_row(out, batch, &row) < 0) {
            fault->reason = REASON_NO_MEMORY;
            break;
        }
        (*count)++;
    }
    return number;
}

/* About the size of the joined rows. */
static size_t joined_size(const Batch *batch, int64_t size_max) {
    uint64_t all = batch_work(batch);
    return size_max < 0 ? 0 : (size_t)(all < (uint64_t)size_max ? all : (uint64_t)size_max);
}

static PyObject *codec_join_client_batch(PyObject *module, PyObject *args, PyObject *keywords) {
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
        } else if (growth_begin_in_bytes(&out, joined_size(&batch, size_max)) == 0) {
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
                                       growth_take_bytes(&out));
        }
    }
    growth_free(&out);
    batch_close(&batch);
    return result;
}

PyMethodDef client_batch_functions[] = {
    NATIVE_FUNCTION(
        join_client_batch, NAMED_ARGUMENTS,
        "batch, first_row, queue, size_max",
        "Rows as the body of a batch send."),
    NATIVE_FUNCTION(
        list_message_ids, NAMED_ARGUMENTS,
        "data, start, count, host, position",
        "Offset ids of consecutive records."),
    NATIVE_FUNCTION(
        split_client_batch, NAMED_ARGUMENTS,
        "data, suffix",
        "The body of a batch send as columns."),
    {NULL, NULL, 0, NULL},
};
