/* decode_columns: the records that queue units point to, as Arrow-shaped columns.
 *
 *     number column   n native int32 or int64
 *     text column     data, n + 1 native int32 offsets, validity bitmap (least bit first) or None
 *
 * Each record is verified and decoded while it is in the cache. Columns are written in place:
 * bodies into memory whose size is bounded by the units, the shorter texts into memory that grows
 * as needed. Large columns use the pool of block.h.
 */
#include "block.h"
#include "growth.h"
#include "spans.h"
#include "text.h"

/* Bits of column_names.py. */
enum {
    WANTED_VALUE = 1,
    WANTED_TOPIC = 2,
    WANTED_TAGS = 4,
    WANTED_KEYS = 8,
    WANTED_UNIQUE_KEY = 16,
    WANTED_PROPERTIES = 32,
    WANTED_MESSAGE_ID = 16384,
    WANTED_MICROS = 1 << 20,
};

typedef enum { NUMBER_QUEUE_ID, NUMBER_QUEUE_OFFSET, NUMBER_STORE_TIMESTAMP, NUMBER_BORN_TIMESTAMP,
               NUMBER_SYS_FLAG, NUMBER_FLAG, NUMBER_RECONSUME_TIMES, NUMBER_PHYSICAL_OFFSET,
               NUMBER_COLUMNS } NumberColumnKind;

static const struct {
    const char *name;
    int bit;
    int nullable;
} text_columns[TEXT_COLUMNS] = {
    [TEXT_TOPIC] = {"topic", WANTED_TOPIC, 0},
    [TEXT_TAGS] = {"tags", WANTED_TAGS, 1},
    [TEXT_KEYS] = {"keys", WANTED_KEYS, 1},
    [TEXT_UNIQUE_KEY] = {"uniq_key", WANTED_UNIQUE_KEY, 1},
    [TEXT_PROPERTIES] = {"properties", WANTED_PROPERTIES, 1},
    [TEXT_MESSAGE_ID] = {"message_id", WANTED_MESSAGE_ID, 0},
};

static const struct {
    const char *name;
    int bit;
    int width;
} number_columns[NUMBER_COLUMNS] = {
    [NUMBER_QUEUE_ID] = {"queue_id", 64, 4},
    [NUMBER_QUEUE_OFFSET] = {"queue_offset", 128, 8},
    [NUMBER_STORE_TIMESTAMP] = {"store_timestamp", 256, 8},
    [NUMBER_BORN_TIMESTAMP] = {"born_timestamp", 512, 8},
    [NUMBER_SYS_FLAG] = {"sys_flag", 1024, 4},
    [NUMBER_FLAG] = {"flag", 2048, 4},
    [NUMBER_RECONSUME_TIMES] = {"reconsume_times", 4096, 4},
    [NUMBER_PHYSICAL_OFFSET] = {"physical_offset", 8192, 8},
};

/* Memory of one result: a bytes object, or a block when it is large. */
typedef struct {
    PyObject *bytes;
    Block block;
} Memory;

typedef struct {
    Memory offsets_memory, validity_memory;
    uint8_t *offsets, *validity; /* NULL = column not wanted, not nullable */
    size_t null_count;
    Growth data;
} TextColumn;

typedef struct {
    CodecState *state;
    int64_t wanted;
    size_t count; /* rows */
    unsigned property_names;
    uint64_t time_factor;
    int64_t queue_id; /* < 0: any */
    Slice topic;      /* NULL data: any */

    Memory value_memory, value_offsets_memory;
    uint8_t *value, *value_offsets;
    size_t value_size, value_capacity;
    TextColumn texts[TEXT_COLUMNS];
    Memory number_memory[NUMBER_COLUMNS];
    uint8_t *numbers[NUMBER_COLUMNS];
    int overflows; /* a column passed 2^31 - 1 bytes; its data is incomplete */
} Columns;

static uint8_t *memory_open(CodecState *state, Memory *memory, size_t size) {
    if (size >= BLOCK_SIZE_MIN) {
        if (block_take(&state->pool, size, &memory->block) < 0)
            PyErr_NoMemory();
        return memory->block.data;
    }
    memory->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    return memory->bytes == NULL ? NULL : (uint8_t *)PyBytes_AsString(memory->bytes);
}

/* The first `size` bytes as a new reference, which owns the memory. */
static PyObject *memory_result(CodecState *state, Memory *memory, size_t size) {
    if (memory->block.data != NULL)
        return block_view(&state->pool, state->block_type, &memory->block, size);
    PyObject *bytes = memory->bytes;
    memory->bytes = NULL;
    if ((size_t)PyBytes_Size(bytes) != size)
        _PyBytes_Resize(&bytes, (Py_ssize_t)size);
    return bytes;
}

static void memory_close(CodecState *state, Memory *memory) {
    Py_CLEAR(memory->bytes);
    block_give(&state->pool, &memory->block);
}

/* The initial size of a text column is what its last read needed per row. */
static int text_open(Columns *columns, int kind) {
    CodecState *state = columns->state;
    TextColumn *text = &columns->texts[kind];
    size_t offsets_size = (columns->count + 1) * 4, validity_size = (columns->count + 7) / 8;
    text->offsets = memory_open(state, &text->offsets_memory, offsets_size);
    if (text->offsets == NULL)
        return -1;
    memset(text->offsets, 0, 4);
    if (text_columns[kind].nullable) {
        text->validity = memory_open(state, &text->validity_memory, validity_size);
        if (text->validity == NULL)
            return -1;
        memset(text->validity, 0, validity_size);
    }
    size_t expected = columns->count * state->text_row_sizes[kind];
    Block block;
    if (expected >= BLOCK_SIZE_MIN &&
        block_take(&state->pool, expected + GROWTH_SPARE_SIZE, &block) == 0)
        text->data = (Growth){.data = block.data, .capacity = block.capacity};
    return 0;
}

static int columns_open(Columns *columns, uint64_t value_size_bound) {
    CodecState *state = columns->state;
    if (columns->wanted & WANTED_VALUE) {
        columns->value_capacity = value_size_bound > INT32_MAX ? INT32_MAX : value_size_bound;
        columns->value = memory_open(state, &columns->value_memory, columns->value_capacity);
        columns->value_offsets =
            memory_open(state, &columns->value_offsets_memory, (columns->count + 1) * 4);
        if (columns->value == NULL || columns->value_offsets == NULL)
            return -1;
        memset(columns->value_offsets, 0, 4);
    }
    for (int kind = 0; kind < TEXT_COLUMNS; kind++) {
        if (columns->wanted & text_columns[kind].bit && text_open(columns, kind) < 0)
            return -1;
    }
    for (int kind = 0; kind < NUMBER_COLUMNS; kind++) {
        if (!(columns->wanted & number_columns[kind].bit))
            continue;
        size_t size = columns->count * (size_t)number_columns[kind].width;
        columns->numbers[kind] = memory_open(state, &columns->number_memory[kind], size);
        if (columns->numbers[kind] == NULL)
            return -1;
    }
    return 0;
}

static void columns_close(Columns *columns) {
    CodecState *state = columns->state;
    memory_close(state, &columns->value_memory);
    memory_close(state, &columns->value_offsets_memory);
    for (int kind = 0; kind < TEXT_COLUMNS; kind++) {
        TextColumn *text = &columns->texts[kind];
        memory_close(state, &text->offsets_memory);
        memory_close(state, &text->validity_memory);
        Block block = {text->data.data, text->data.capacity};
        block_give(&state->pool, &block);
    }
    for (int kind = 0; kind < NUMBER_COLUMNS; kind++)
        memory_close(state, &columns->number_memory[kind]);
}

static inline void store_offset(uint8_t *offsets, size_t row, size_t end) {
    int32_t offset = (int32_t)end;
    memcpy(offsets + (row + 1) * 4, &offset, 4);
}

static void put_value(Columns *columns, size_t row, const Record *record) {
    if (record->body_size > columns->value_capacity - columns->value_size) {
        columns->overflows = 1;
        return;
    }
    memcpy(columns->value + columns->value_size, record->start + record->body_at,
           record->body_size);
    columns->value_size += record->body_size;
    store_offset(columns->value_offsets, row, columns->value_size);
}

/* Finishes a row of a text column whose bytes were written behind `data.size`. */
static inline void end_text(Columns *columns, TextColumn *text, size_t row, size_t size) {
    if (size > INT32_MAX - text->data.size) {
        columns->overflows = 1;
        return;
    }
    text->data.size += size;
    store_offset(text->offsets, row, text->data.size);
    if (text->validity == NULL)
        return;
    if (size == 0)
        text->null_count++;
    else
        text->validity[row / 8] |= (uint8_t)(1u << (row % 8));
}

/* `readable` bytes may be read from value.data on; it lets short values be copied as one block. */
static inline Reason put_text(Columns *columns, TextColumn *text, size_t row, Slice value,
                              size_t readable) {
    uint8_t *out = growth_reserve(&text->data, value.size);
    if (out == NULL)
        return REASON_NO_MEMORY;
    if (value.size <= GROWTH_SPARE_SIZE && readable >= GROWTH_SPARE_SIZE)
        memcpy(out, value.data, GROWTH_SPARE_SIZE);
    else if (value.size != 0)
        memcpy(out, value.data, value.size);
    end_text(columns, text, row, value.size);
    return REASON_NONE;
}

/* A property value; invalid UTF-8 is repaired, so that the column is valid Arrow text. */
static Reason put_property(Columns *columns, TextColumn *text, size_t row, Slice value,
                           const Record *record) {
    if (value.data == NULL || is_valid_utf8(value.data, value.size)) {
        const uint8_t *end = record->start + record->size;
        return put_text(columns, text, row, value,
                        value.data == NULL ? 0 : (size_t)(end - value.data));
    }
    uint8_t *out = growth_reserve(&text->data, value.size * 3);
    if (out == NULL)
        return REASON_NO_MEMORY;
    end_text(columns, text, row, replace_invalid_utf8(value.data, value.size, out));
    return REASON_NONE;
}

static Reason put_named_properties(Columns *columns, size_t row, const Record *record) {
    NamedProperties found;
    find_properties(record->start + record->properties_at, record->properties_size,
                    columns->property_names, &found);
    const Slice values[] = {found.tags, found.keys, found.unique_key};
    for (int index = 0; index < 3; index++) {
        TextColumn *text = &columns->texts[TEXT_TAGS + index];
        if (text->offsets == NULL)
            continue;
        Reason reason = put_property(columns, text, row, values[index], record);
        if (reason != REASON_NONE)
            return reason;
    }
    return REASON_NONE;
}

static Reason put_all_properties(Columns *columns, size_t row, const Record *record) {
    uint64_t checksum;
    Slice text = {record->start + record->properties_at, record->properties_size};
    if (record_tail(record, &checksum) == TAIL_WELL_FORMED)
        text.size -= CRC_TAIL_SIZE;
    return put_text(columns, &columns->texts[TEXT_PROPERTIES], row, text, 0);
}

/* Offset message id: store host and position in hexadecimal. */
static Reason put_message_id(Columns *columns, size_t row, const Record *record) {
    TextColumn *text = &columns->texts[TEXT_MESSAGE_ID];
    size_t host_size = record_store_host_size(record);
    uint8_t *out = growth_reserve(&text->data, (host_size + 8) * 2);
    if (out == NULL)
        return REASON_NO_MEMORY;
    uint8_t *end = put_hex(out, record_store_host(record), host_size);
    end = put_hex(end, record->start + PHYSICAL_OFFSET_AT, 8);
    end_text(columns, text, row, (size_t)(end - out));
    return REASON_NONE;
}

static inline void put_int32(uint8_t *column, size_t row, const uint8_t *field) {
    if (column != NULL) {
        int32_t value = load_i32(field);
        memcpy(column + row * 4, &value, 4);
    }
}

static inline void put_int64(uint8_t *column, size_t row, const uint8_t *field, uint64_t factor) {
    if (column != NULL)
        store_counter(column, row, load_u64(field) * factor);
}

static void put_numbers(Columns *columns, size_t row, const Record *record) {
    const uint8_t *start = record->start, *store_timestamp = record_store_timestamp(record);
    const uint8_t *reconsume_times = record_store_host(record) + record_store_host_size(record);
    uint8_t **numbers = columns->numbers;
    put_int32(numbers[NUMBER_QUEUE_ID], row, start + QUEUE_ID_AT);
    put_int64(numbers[NUMBER_QUEUE_OFFSET], row, start + QUEUE_OFFSET_AT, 1);
    put_int64(numbers[NUMBER_STORE_TIMESTAMP], row, store_timestamp, columns->time_factor);
    put_int64(numbers[NUMBER_BORN_TIMESTAMP], row, start + BORN_TIMESTAMP_AT, columns->time_factor);
    put_int32(numbers[NUMBER_SYS_FLAG], row, start + SYS_FLAG_AT);
    put_int32(numbers[NUMBER_FLAG], row, start + FLAG_AT);
    put_int32(numbers[NUMBER_RECONSUME_TIMES], row, reconsume_times);
    put_int64(numbers[NUMBER_PHYSICAL_OFFSET], row, start + PHYSICAL_OFFSET_AT, 1);
}

static Reason put_row(Columns *columns, size_t row, const Record *record) {
    Reason reason = REASON_NONE;
    put_numbers(columns, row, record);
    if (columns->value != NULL)
        put_value(columns, row, record);
    if (columns->texts[TEXT_TOPIC].offsets != NULL) {
        Slice topic = {record->start + record->topic_at, record->topic_size};
        reason = put_text(columns, &columns->texts[TEXT_TOPIC], row, topic,
                          record->size - record->topic_at);
    }
    if (reason == REASON_NONE && columns->property_names != 0)
        reason = put_named_properties(columns, row, record);
    if (reason == REASON_NONE && columns->texts[TEXT_PROPERTIES].offsets != NULL)
        reason = put_all_properties(columns, row, record);
    if (reason == REASON_NONE && columns->texts[TEXT_MESSAGE_ID].offsets != NULL)
        reason = put_message_id(columns, row, record);
    return reason;
}

static Reason check_queue(const Columns *columns, const Record *record) {
    if (columns->queue_id >= 0 && load_i32(record->start + QUEUE_ID_AT) != columns->queue_id)
        return REASON_QUEUE_ID_DISAGREES;
    if (columns->topic.data != NULL &&
        (columns->topic.size != record->topic_size ||
         memcmp(columns->topic.data, record->start + record->topic_at, record->topic_size) != 0))
        return REASON_TOPIC_DISAGREES;
    return REASON_NONE;
}

/* All rows; the first fault ends the walk. Units are copied before use, because they may be in
 * shared memory that changes. */
static Fault put_rows(Columns *columns, Spans *spans, const uint8_t *units, uint64_t queue_offset,
                      int verify) {
    for (size_t row = 0; row < columns->count; row++, units += UNIT_SIZE) {
        uint8_t unit[UNIT_SIZE];
        memcpy(unit, units, UNIT_SIZE);
        const uint8_t *start = NULL;
        Record record;
        Reason reason = spans_find(spans, unit, &start);
        if (reason == REASON_NONE)
            reason = read_unit(start, unit, queue_offset + row, verify, &record);
        if (reason == REASON_NONE)
            reason = check_queue(columns, &record);
        /* A column that is too large is reported only if no record is corrupt. */
        if (reason == REASON_NONE && !columns->overflows)
            reason = put_row(columns, row, &record);
        if (reason != REASON_NONE)
            return (Fault){reason, unit_position(unit)};
    }
    return (Fault){REASON_NONE, 0};
}

static int add_column(PyObject *dict, const char *name, PyObject *column) {
    if (column == NULL)
        return -1;
    int result = PyDict_SetItemString(dict, name, column);
    Py_DECREF(column);
    return result;
}

static int add_value_column(PyObject *dict, Columns *columns) {
    CodecState *state = columns->state;
    if (columns->value == NULL)
        return 0;
    size_t offsets_size = (columns->count + 1) * 4;
    PyObject *data = memory_result(state, &columns->value_memory, columns->value_size);
    PyObject *offsets = memory_result(state, &columns->value_offsets_memory, offsets_size);
    /* "N" takes over both references, and a missing one makes the call fail. */
    return add_column(dict, "value", Py_BuildValue("(NN)", data, offsets));
}

static PyObject *text_data(CodecState *state, int kind, TextColumn *text, size_t count) {
    if (text->data.size < BLOCK_SIZE_MIN)
        return growth_bytes(&text->data);
    state->text_row_sizes[kind] = (text->data.size + count - 1) / count;
    Block block = {text->data.data, text->data.capacity};
    size_t size = text->data.size;
    text->data = (Growth){0};
    return block_view(&state->pool, state->block_type, &block, size);
}

static int add_text_column(PyObject *dict, Columns *columns, int kind) {
    CodecState *state = columns->state;
    TextColumn *text = &columns->texts[kind];
    if (text->offsets == NULL)
        return 0;
    PyObject *validity = Py_None;
    if (text->null_count != 0)
        validity = memory_result(state, &text->validity_memory, (columns->count + 7) / 8);
    else
        Py_INCREF(validity);
    PyObject *data = text_data(state, kind, text, columns->count);
    PyObject *offsets = memory_result(state, &text->offsets_memory, (columns->count + 1) * 4);
    return add_column(dict, text_columns[kind].name,
                      Py_BuildValue("(NNN)", data, offsets, validity));
}

static PyObject *columns_result(Columns *columns) {
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int result = add_value_column(dict, columns);
    for (int kind = 0; result == 0 && kind < TEXT_COLUMNS; kind++)
        result = add_text_column(dict, columns, kind);
    for (int kind = 0; result == 0 && kind < NUMBER_COLUMNS; kind++) {
        if (columns->numbers[kind] != NULL)
            result = add_column(dict, number_columns[kind].name,
                                memory_result(columns->state, &columns->number_memory[kind],
                                              columns->count * (size_t)number_columns[kind].width));
    }
    if (result < 0)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *decode(Columns *columns, Spans *spans, const Py_buffer *units,
                        uint64_t queue_offset, int verify) {
    uint64_t total_size;
    Fault missing = {REASON_NONE, 0};
    columns->count = (size_t)units->len / UNIT_SIZE;
    size_t found = count_found_units(spans, units->buf, columns->count, &total_size, &missing);
    /* A record has at least RECORD_SIZE_MIN bytes besides its body; a smaller one is rejected. */
    uint64_t overhead = (uint64_t)found * RECORD_SIZE_MIN;
    if (columns_open(columns, total_size > overhead ? total_size - overhead : 0) < 0)
        return NULL;
    PyThreadState *saved = release_gil(total_size);
    Fault fault = put_rows(columns, spans, units->buf, queue_offset, verify);
    take_gil(saved);
    if (fault.reason != REASON_NONE)
        return raise_corrupt_record(columns->state, fault);
    if (columns->overflows) {
        PyErr_SetObject(PyExc_OverflowError, columns->state->reasons[REASON_COLUMN_TOO_LARGE]);
        return NULL;
    }
    return columns_result(columns);
}

static PyObject *codec_decode_columns(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"spans", "units",  "queue_offset", "queue_id",
                            "topic", "wanted", "verify",       NULL};
    PyObject *sequence, *topic, *result = NULL;
    Py_buffer units;
    int64_t queue_offset;
    int verify;
    Columns columns = {.state = PyModule_GetState(module)};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Oy*O&O&OO&i:decode_columns", names, &sequence,
                                     &units, to_bounded, &queue_offset, to_bounded,
                                     &columns.queue_id, &topic, to_bounded, &columns.wanted,
                                     &verify))
        return NULL;
    Spans spans = {0};
    if (topic != Py_None && !PyBytes_Check(topic)) {
        PyErr_SetString(PyExc_TypeError, "topic must be bytes or None");
        goto done;
    }
    if (topic != Py_None)
        columns.topic = (Slice){(const uint8_t *)PyBytes_AsString(topic),
                                (size_t)PyBytes_Size(topic)};
    columns.time_factor = columns.wanted & WANTED_MICROS ? 1000 : 1;
    columns.property_names = (columns.wanted & WANTED_TAGS ? WANT_TAGS : 0) |
                             (columns.wanted & WANTED_KEYS ? WANT_KEYS : 0) |
                             (columns.wanted & WANTED_UNIQUE_KEY ? WANT_UNIQUE_KEY : 0);
    if (spans_open(sequence, &spans) < 0)
        goto done;
    result = units.len % UNIT_SIZE != 0
                 ? raise_value_error(columns.state, REASON_BAD_UNITS)
                 : decode(&columns, &spans, &units, (uint64_t)queue_offset, verify);
done:
    columns_close(&columns);
    spans_close(&spans);
    PyBuffer_Release(&units);
    return result;
}

PyMethodDef decode_functions[] = {
    NATIVE_FUNCTION(
        decode_columns, NAMED_ARGUMENTS,
        "spans, units, queue_offset, queue_id, topic, wanted, verify",
        "The records that queue units point to, as columns."),
    {NULL, NULL, 0, NULL},
};
