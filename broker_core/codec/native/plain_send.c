/* The JSON header of a plain send, read without building JSON objects.
 *
 * Most headers that a busy broker gets are those of SEND_MESSAGE_V2 for one ordinary message, or of
 * SEND_BATCH_MESSAGE for many. This reads exactly those and returns None for all others: escapes
 * outside the property text, other codes, flags, retries, delays, duplicate keys, wrong types. The
 * caller then falls back to the general decoder.
 */
#include "plain_send.h"

typedef struct {
    const uint8_t *at, *end;
} Reader;

typedef PlainSendHeader Header;

enum { TOP_CODE = 1, TOP_EXT = 2, TOP_FLAG = 4, TOP_LANGUAGE = 8, TOP_OPAQUE = 16, TOP_TYPE = 32,
       TOP_VERSION = 64 };

static inline int take(Reader *reader, uint8_t wanted) {
    if (reader->at < reader->end && *reader->at == wanted) {
        reader->at++;
        return 1;
    }
    return 0;
}

/* A string; its bytes as they are in the header. */
static int take_text(Reader *reader, Text *text) {
    if (!take(reader, '"'))
        return 0;
    text->data = reader->at;
    text->has_escape = 0;
    for (; reader->at < reader->end; reader->at++) {
        uint8_t byte = *reader->at;
        if (byte == '"') {
            text->size = (size_t)(reader->at++ - text->data);
            return 1;
        }
        if (byte < 0x20)
            return 0;
        if (byte == '\\') {
            text->has_escape = 1;
            if (++reader->at == reader->end)
                return 0;
        }
    }
    return 0;
}

static int parse_number(const uint8_t *at, size_t size, int64_t min, int64_t max, int64_t *value) {
    int negative = size > 0 && *at == '-';
    size_t digits = size - (size_t)negative;
    if (digits == 0 || digits > 18)
        return 0;
    /* JSON has no leading zeros and no -0; such texts need the general decoder. */
    if (at[negative] == '0' && size > 1)
        return 0;
    int64_t total = 0;
    for (size_t index = (size_t)negative; index < size; index++) {
        if (at[index] < '0' || at[index] > '9')
            return 0;
        total = total * 10 + (at[index] - '0');
    }
    *value = negative ? -total : total;
    return min <= *value && *value <= max;
}

static int take_i32(Reader *reader, int64_t *value) {
    const uint8_t *start = reader->at;
    while (reader->at < reader->end &&
           (*reader->at == '-' || (*reader->at >= '0' && *reader->at <= '9')))
        reader->at++;
    return parse_number(start, (size_t)(reader->at - start), INT32_MIN, INT32_MAX, value);
}

static inline int is_text(Text text, const char *wanted) {
    return text.size == strlen(wanted) && memcmp(text.data, wanted, text.size) == 0;
}

static int is_plain_ascii(Text text) {
    if (text.has_escape)
        return 0;
    for (size_t index = 0; index < text.size; index++)
        if (text.data[index] >= 0x80)
            return 0;
    return 1;
}

static int take_field(Header *header, Text name, Text value) {
    if (name.size != 1 || name.has_escape)
        /* Unknown fields are ignored if their text has no escapes. */
        return is_plain_ascii(name) && is_plain_ascii(value) && name.size != 0;
    int letter = name.data[0] - 'a';
    if (letter < 0 || letter > 13 || (header->fields & (1u << letter)))
        return 0;
    header->fields |= 1u << letter;
    if (name.data[0] == 'i') {
        header->text = value;
        return 1;
    }
    if (!is_plain_ascii(value))
        return 0;
    switch (name.data[0]) {
    case 'b':
        header->topic = value;
        return 1;
    case 'e':
        return parse_number(value.data, value.size, 0, INT32_MAX, &header->queue_id);
    case 'f':
        return parse_number(value.data, value.size, INT32_MIN, INT32_MAX, &header->sys_flag);
    case 'g':
        return parse_number(value.data, value.size, INT64_MIN, INT64_MAX, &header->born);
    case 'h':
        return parse_number(value.data, value.size, INT32_MIN, INT32_MAX, &header->user_flag);
    case 'j':
        return is_text(value, "0");
    case 'm':
        header->is_batch = is_text(value, "true");
        return header->is_batch || is_text(value, "false");
    default:
        return 1;
    }
}

static int take_fields(Reader *reader, Header *header) {
    if (!take(reader, '{'))
        return 0;
    if (take(reader, '}'))
        return 1;
    do {
        Text name, value;
        if (!take_text(reader, &name) || !take(reader, ':') || !take_text(reader, &value) ||
            !take_field(header, name, value))
            return 0;
    } while (take(reader, ','));
    return take(reader, '}');
}

static int take_entry(Reader *reader, Header *header) {
    Text name, ignored;
    if (!take_text(reader, &name) || !take(reader, ':') || name.has_escape)
        return 0;
    unsigned bit;
    int ok;
    if (is_text(name, "code")) {
        bit = TOP_CODE;
        ok = take_i32(reader, &header->code);
    } else if (is_text(name, "extFields")) {
        bit = TOP_EXT;
        ok = take_fields(reader, header);
    } else if (is_text(name, "flag")) {
        bit = TOP_FLAG;
        ok = take_i32(reader, &header->flag);
    } else if (is_text(name, "opaque")) {
        bit = TOP_OPAQUE;
        ok = take_i32(reader, &header->opaque);
    } else if (is_text(name, "version")) {
        bit = TOP_VERSION;
        ok = take_i32(reader, &header->version);
    } else if (is_text(name, "language")) {
        bit = TOP_LANGUAGE;
        ok = take_text(reader, &ignored) && is_plain_ascii(ignored);
    } else if (is_text(name, "serializeTypeCurrentRPC")) {
        bit = TOP_TYPE;
        ok = take_text(reader, &ignored) && is_plain_ascii(ignored);
    } else
        return 0;
    if (header->seen & bit)
        return 0;
    header->seen |= bit;
    return ok;
}

static int read_header(Reader *reader, int64_t code, Header *header) {
    if (!take(reader, '{'))
        return 0;
    do {
        if (!take_entry(reader, header))
            return 0;
    } while (take(reader, ','));
    /* group, topic, queue, three numbers and the property text */
    const unsigned needed = 1u << 0 | 1u << 1 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 8;
    const unsigned needed_entries = TOP_CODE | TOP_EXT | TOP_OPAQUE;
    return take(reader, '}') && reader->at == reader->end && header->code == code &&
           header->is_batch == (code == PLAIN_BATCH) && header->flag == 0 &&
           (header->seen & needed_entries) == needed_entries &&
           (header->fields & needed) == needed && header->topic.size != 0;
}

static int hex_digit(uint8_t byte) {
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Writes the property text without escapes, which is not longer; -1 to fall back. Surrogate
 * pairs and text that is not ASCII need the general decoder. */
static int64_t unescape(Text text, uint8_t *out) {
    uint8_t *start = out;
    for (size_t index = 0; index < text.size; index++) {
        uint8_t byte = text.data[index];
        if (byte >= 0x80)
            return -1;
        if (byte != '\\') {
            *out++ = byte;
            continue;
        }
        byte = text.data[++index];
        if (byte == 'u') {
            if (text.size - index < 5)
                return -1;
            int code = 0;
            for (int digit = 1; digit <= 4; digit++) {
                int value = hex_digit(text.data[index + (size_t)digit]);
                if (value < 0)
                    return -1;
                code = code << 4 | value;
            }
            if (code >= 0x80)
                return -1;
            *out++ = (uint8_t)code;
            index += 4;
        } else if (byte == '"' || byte == '\\' || byte == '/')
            *out++ = byte;
        else
            return -1;
    }
    return out - start;
}

static int starts_with(const uint8_t *name, size_t size, const char *wanted) {
    size_t wanted_size = strlen(wanted);
    return size >= wanted_size && memcmp(name, wanted, wanted_size) == 0;
}

/* Whether all pairs are ordinary ones; finds the unique key. */
static int pairs_are_plain(const uint8_t *text, size_t size, Slice *unique) {
    static const char *const special[] = {"DELAY", "TRAN_MSG", "POP_CK", "CLUSTER", "MSG_REGION",
                                          "TRACE_ON", "__CRC32#"};
    const uint8_t *at = text, *end = text + size;
    *unique = (Slice){text, 0};
    while (at < end) {
        const uint8_t *pair_end = memchr(at, 2, (size_t)(end - at));
        if (pair_end == NULL)
            pair_end = end;
        const uint8_t *middle = memchr(at, 1, (size_t)(pair_end - at));
        if (middle == NULL || middle == at || middle + 1 == pair_end)
            return 0;
        size_t name_size = (size_t)(middle - at), value_size = (size_t)(pair_end - middle - 1);
        if (starts_with(at, name_size, "TIMER_"))
            return 0;
        for (size_t index = 0; index < sizeof special / sizeof *special; index++)
            if (name_size == strlen(special[index]) && memcmp(at, special[index], name_size) == 0)
                return 0;
        if (name_size == 4 && memcmp(at, "WAIT", 4) == 0 &&
            (value_size != 4 || memcmp(middle + 1, "true", 4) != 0))
            return 0;
        if (name_size == 8 && memcmp(at, "UNIQ_KEY", 8) == 0) {
            if (unique->size != 0)
                return 0;
            *unique = (Slice){middle + 1, value_size};
        }
        at = pair_end + 1;
    }
    for (size_t index = 0; index < unique->size; index++) {
        uint8_t byte = unique->data[index];
        uint8_t lower = byte | 0x20;
        if (!((byte >= '0' && byte <= '9') || (lower >= 'a' && lower <= 'z')))
            return 0;
    }
    return 1;
}

int plain_send_read(const uint8_t *data, size_t size, int64_t code, PlainSendHeader *header) {
    Reader reader = {data, data + size};
    memset(header, 0, sizeof *header);
    return read_header(&reader, code, header);
}

size_t plain_send_text(const PlainSendHeader *header, uint8_t *out, Slice *unique) {
    int64_t size = unescape(header->text, out);
    if (size <= 0 || !pairs_are_plain(out, (size_t)size, unique))
        return 0;
    /* The messages of a batch have keys of their own. */
    if (unique->size == 0 && header->code == PLAIN_ONE)
        return 0;
    if (out[size - 1] != 2)
        out[size++] = 2;
    return (size_t)size;
}

/* The result of read_plain_send: a tuple, or None if a property needs the general decoder. */
static PyObject *fields_of(const Header *header, const Py_buffer *suffix) {
    PyObject *text = PyBytes_FromStringAndSize(
        NULL, (Py_ssize_t)(header->text.size + 1) + suffix->len);
    if (text == NULL)
        return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(text);
    Slice unique;
    Py_ssize_t size = (Py_ssize_t)plain_send_text(header, start, &unique);
    if (size == 0) {
        Py_DECREF(text);
        Py_RETURN_NONE;
    }
    if (suffix->len != 0)
        memcpy(start + size, suffix->buf, (size_t)suffix->len);
    PyObject *key = PyBytes_FromStringAndSize((const char *)unique.data, (Py_ssize_t)unique.size);
    if (key == NULL || _PyBytes_Resize(&text, size + suffix->len) < 0) {
        Py_XDECREF(key);
        Py_XDECREF(text);
        return NULL;
    }
    return Py_BuildValue("(LLs#LLLLNN)", (long long)header->opaque, (long long)header->version,
                         (const char *)header->topic.data, (Py_ssize_t)header->topic.size,
                         (long long)header->queue_id, (long long)header->sys_flag,
                         (long long)header->born, (long long)header->user_flag, text, key);
}

static PyObject *codec_read_plain_send(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "read_plain_send takes 3 arguments, not %zd", count);
        return NULL;
    }
    long code = PyLong_AsLong(args[2]);
    if (code == -1 && PyErr_Occurred())
        return NULL;
    Py_buffer data, suffix;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[1], &suffix, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    Header header;
    PyObject *result;
    if (plain_send_read(data.buf, (size_t)data.len, code, &header))
        result = fields_of(&header, &suffix);
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&suffix);
    PyBuffer_Release(&data);
    return result;
}

PyMethodDef plain_send_functions[] = {
    NATIVE_FUNCTION(
        read_plain_send, PLACED_ARGUMENTS,
        "header, suffix, code, /",
        "Fields of a send that only needs to be stored."),
    {NULL, NULL, 0, NULL},
};
