/* JSON bodies to columns, by the rules of json_values.py.
 *
 * Values of fields that are not selected are checked and skipped. Left to Python: names with
 * escapes, fields that occur twice, halves of surrogate pairs, NaN and infinities, objects and
 * arrays in texts, and unusual forms of decimals, dates and times.
 */
#include "columns.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#include "utf8.h"

static int value(Reader *reader, Column *column);
static int skip(Reader *reader);

static inline void skip_space(Reader *reader) {
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                        *reader->at == '\r' || *reader->at == '\t'))
        reader->at++;
}

static inline int mark(Reader *reader, uint8_t wanted) {
    if (reader->at == reader->end || *reader->at != wanted)
        return REFUSED;
    reader->at++;
    return 0;
}

static inline int word(Reader *reader, const char *wanted, size_t size) {
    if (left(reader) < size || memcmp(reader->at, wanted, size) != 0)
        return REFUSED;
    reader->at += size;
    return 0;
}

/* 1 and `column` is null, 0 if the next value is none, or -1. */
static inline int is_null(Reader *reader, Column *column) {
    if (reader->at == reader->end || *reader->at != 'n')
        return 0;
    TRY(word(reader, "null", 4));
    TRY(column_null(reader->plan, column));
    return 1;
}

/* Texts */

typedef struct {
    const uint8_t *start;
    size_t size;
    int has_escape;
} Text;

static int hex4(const uint8_t *at, uint32_t *unit) {
    uint32_t found = 0;
    for (int index = 0; index < 4; index++) {
        uint8_t byte = at[index], lower = byte | 0x20;
        if (byte >= '0' && byte <= '9')
            found = found << 4 | (uint32_t)(byte - '0');
        else if (lower >= 'a' && lower <= 'f')
            found = found << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return REFUSED;
    }
    *unit = found;
    return 0;
}

/* The text between two quotes, with checked escapes. */
static int text_token(Reader *reader, Text *text) {
    TRY(mark(reader, '"'));
    const uint8_t *at = reader->at, *end = reader->end;
    text->start = at;
    text->has_escape = 0;
    for (;;) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (end - at >= 8) {
            uint64_t bytes = load_word(at);
            uint64_t hits = zero_bytes(bytes ^ (ONES * '"')) | zero_bytes(bytes ^ (ONES * '\\')) |
                            ((bytes - ONES * 0x20) & ~bytes & TOPS);
            if (hits != 0) {
                at += __builtin_ctzll(hits) >> 3;
                break;
            }
            at += 8;
        }
#endif
        while (at < end && *at != '"' && *at != '\\' && *at >= 0x20)
            at++;
        if (at == end || *at < 0x20)
            return REFUSED;
        if (*at == '"')
            break;
        text->has_escape = 1;
        uint32_t unit;
        if (end - at < 2)
            return REFUSED;
        switch (at[1]) {
        case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
            at += 2;
            break;
        case 'u':
            if (end - at < 6)
                return REFUSED;
            TRY(hex4(at + 2, &unit));
            at += 6;
            break;
        default:
            return REFUSED;
        }
    }
    text->size = (size_t)(at - text->start);
    reader->at = at + 1;
    return 0;
}

/* Writes a text with checked escapes; it gets shorter. -1: half of a surrogate pair. */
static int unescape(const Text *text, uint8_t *out, size_t *size) {
    const uint8_t *at = text->start, *end = at + text->size;
    uint8_t *start = out;
    while (at < end) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        static const char marks[] = "bfnrt", meanings[] = "\b\f\n\r\t";
        const char *known = strchr(marks, at[1]);
        if (at[1] != 'u') {
            *out++ = known == NULL ? at[1] : (uint8_t)meanings[known - marks];
            at += 2;
            continue;
        }
        uint32_t unit = 0, low = 0;
        TRY(hex4(at + 2, &unit));
        at += 6;
        if (unit >= 0xDC00 && unit < 0xE000)
            return REFUSED;
        if (unit >= 0xD800 && unit < 0xDC00) {
            if (end - at < 6 || at[0] != '\\' || at[1] != 'u' || hex4(at + 2, &low) < 0 ||
                low < 0xDC00 || low >= 0xE000)
                return REFUSED;
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
        }
        out += put_character(unit, out);
    }
    *size = (size_t)(out - start);
    return 0;
}

static int put_text(Reader *reader, Column *column, const Text *text) {
    if (!text->has_escape)
        return column_bytes(reader->plan, column, text->start, text->size);
    uint8_t *out = column_text_begin(reader->plan, column, text->size);
    size_t size;
    if (out == NULL)
        return REFUSED;
    TRY(unescape(text, out, &size));
    return column_text_end(reader->plan, column, size);
}

static int base64_digit(uint8_t byte) {
    if (byte >= 'A' && byte <= 'Z')
        return byte - 'A';
    if (byte >= 'a' && byte <= 'z')
        return byte - 'a' + 26;
    if (byte >= '0' && byte <= '9')
        return byte - '0' + 52;
    return byte == '+' ? 62 : byte == '/' ? 63 : -1;
}

/* Base64 in groups of four, the last one padded. */
static int put_base64(Reader *reader, Column *column, const Text *text) {
    const uint8_t *at = text->start, *end = at + text->size;
    if (text->has_escape || text->size % 4 != 0)
        return REFUSED;
    int padding = text->size == 0 ? 0 : (end[-1] == '=') + (end[-1] == '=' && end[-2] == '=');
    uint8_t *out = column_text_begin(reader->plan, column, text->size);
    if (out == NULL)
        return REFUSED;
    uint8_t *start = out;
    for (end -= padding; at < end; at += 4) {
        uint32_t bits = 0;
        int count = end - at < 4 ? (int)(end - at) : 4;
        for (int index = 0; index < 4; index++) {
            int digit = index < count ? base64_digit(at[index]) : 0;
            if (digit < 0)
                return REFUSED;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (int index = 0; index < count - 1; index++)
            *out++ = (uint8_t)(bits >> (16 - 8 * index));
    }
    return column_text_end(reader->plan, column, (size_t)(out - start));
}

/* Numbers */

typedef struct {
    const uint8_t *start;
    size_t size;
    int is_integer; /* neither fraction nor exponent */
    int is_exact;   /* digits and power are the whole number */
    uint64_t digits;
    int power; /* of ten */
} Number;

static inline const uint8_t *digits_of(const uint8_t *at, const uint8_t *end, Number *number,
                                       int *count) {
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        *count += number->digits != 0 || *at != '0';
        if (*count <= 19)
            number->digits = number->digits * 10 + (uint64_t)(*at - '0');
    }
    return at;
}

static int number_token(Reader *reader, Number *number) {
    const uint8_t *at = reader->at, *end = reader->end;
    int count = 0;
    *number = (Number){.start = at, .is_integer = 1};
    if (at < end && *at == '-')
        at++;
    const uint8_t *whole = at;
    at = digits_of(at, end, number, &count);
    if (at == whole || (*whole == '0' && at - whole > 1))
        return REFUSED;
    if (at < end && *at == '.') {
        const uint8_t *fraction = ++at;
        number->is_integer = 0;
        at = digits_of(at, end, number, &count);
        if (at == fraction)
            return REFUSED;
        number->power = at - fraction < 1000 ? -(int)(at - fraction) : -1000;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        int exponent = 0, is_negative = 0;
        number->is_integer = 0;
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            is_negative = *at++ == '-';
        const uint8_t *power = at;
        for (; at < end && *at >= '0' && *at <= '9'; at++)
            exponent = exponent < 10000 ? exponent * 10 + (*at - '0') : exponent;
        if (at == power)
            return REFUSED;
        number->power += is_negative ? -exponent : exponent;
    }
    number->is_exact = count <= 19;
    number->size = (size_t)(at - number->start);
    reader->at = at;
    return 0;
}

static int put_integer(Reader *reader, Column *column, const Number *number) {
    if (!number->is_integer || !number->is_exact)
        return REFUSED;
    if (*number->start != '-')
        return column_unsigned(reader->plan, column, number->digits);
    if (number->digits > (uint64_t)1 << 63)
        return REFUSED;
    return column_integer(reader->plan, column, (int64_t)(0 - number->digits));
}

/* For the C library's own conversions: a point is a point. */
static locale_t plain;

int prepare_json(void) {
    if (plain == (locale_t)0)
        plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain == (locale_t)0 ? -1 : 0;
}

static int put_converted(Reader *reader, Column *column, const Number *number) {
    char text[64];
    if (number->size >= sizeof text)
        return REFUSED;
    memcpy(text, number->start, number->size);
    text[number->size] = 0;
    double real = column->kind == COLUMN_FLOAT ? (double)strtof_l(text, NULL, plain)
                                               : strtod_l(text, NULL, plain);
    return isfinite(real) ? column_real(reader->plan, column, real) : REFUSED;
}

static int put_real(Reader *reader, Column *column, const Number *number) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    /* Both parts are exact, so one division or multiplication rounds correctly. */
    if (column->kind != COLUMN_DOUBLE || !number->is_exact ||
        number->digits > (uint64_t)1 << 53 || number->power < -22 || number->power > 22)
        return put_converted(reader, column, number);
    double real = (double)number->digits;
    real = number->power < 0 ? real / powers[-number->power] : real * powers[number->power];
    return column_real(reader->plan, column, *number->start == '-' ? -real : real);
}

static int put_seconds(Reader *reader, Column *column, const Number *number) {
    int64_t micros;
    if (!number->is_integer || !number->is_exact || number->digits > INT64_MAX)
        return REFUSED;
    int64_t seconds = (int64_t)number->digits;
    TRY(joined_micros(*number->start == '-' ? -seconds : seconds, 0, &micros));
    return column_micros(reader->plan, column, micros);
}

static int put_number(Reader *reader, Column *column) {
    Number number;
    TRY(number_token(reader, &number));
    switch (column->kind) {
    case COLUMN_INT8:
    case COLUMN_INT16:
    case COLUMN_INT32:
    case COLUMN_INT64:
        return put_integer(reader, column, &number);
    case COLUMN_FLOAT:
    case COLUMN_DOUBLE:
        return put_real(reader, column, &number);
    case COLUMN_DECIMAL:
        return column_parsed(reader->plan, column, number.start, number.size);
    case COLUMN_TIMESTAMP:
        return put_seconds(reader, column, &number);
    case COLUMN_STRING:
        return column_bytes(reader->plan, column, number.start, number.size);
    default:
        return REFUSED;
    }
}

/* Values */

static int put_word(Reader *reader, Column *column) {
    int is_true = *reader->at == 't';
    const uint8_t *start = reader->at;
    TRY(is_true ? word(reader, "true", 4) : word(reader, "false", 5));
    if (column->kind == COLUMN_STRING)
        return column_bytes(reader->plan, column, start, (size_t)(reader->at - start));
    return column_boolean(reader->plan, column, is_true);
}

static int put_quoted(Reader *reader, Column *column) {
    Text text;
    TRY(text_token(reader, &text));
    if (column->kind == COLUMN_STRING)
        return put_text(reader, column, &text);
    if (column->kind == COLUMN_BINARY)
        return put_base64(reader, column, &text);
    if (text.has_escape)
        return REFUSED;
    return column_parsed(reader->plan, column, text.start, text.size);
}

/* After an item: 1 if there is another one, 0 at the end. */
static int goes_on(Reader *reader, uint8_t end) {
    skip_space(reader);
    if (reader->at == reader->end)
        return REFUSED;
    uint8_t byte = *reader->at++;
    if (byte == end)
        return 0;
    return byte == ',' ? 1 : REFUSED;
}

static int is_empty(Reader *reader, uint8_t end) {
    reader->at++;
    skip_space(reader);
    if (reader->at == reader->end || *reader->at != end)
        return 0;
    reader->at++;
    return 1;
}

static int name_token(Reader *reader, Text *name) {
    skip_space(reader);
    TRY(text_token(reader, name));
    skip_space(reader);
    return mark(reader, ':');
}

static int read_struct(Reader *reader, Column *column) {
    size_t hint = 0;
    int more = !is_empty(reader, '}');
    while (more > 0) {
        Text name;
        TRY(name_token(reader, &name));
        if (name.has_escape)
            return REFUSED;
        Column *field = column_field(reader->plan, column, name.start, name.size, &hint);
        if (field == NULL) {
            TRY(skip(reader));
        } else {
            if (field->length != column->length)
                return REFUSED;
            TRY(value(reader, field));
        }
        more = goes_on(reader, '}');
    }
    return more < 0 ? REFUSED : column_end_struct(reader->plan, column);
}

static int read_list(Reader *reader, Column *column) {
    int more = !is_empty(reader, ']');
    while (more > 0) {
        TRY(value(reader, column_at(reader->plan, column->first)));
        more = goes_on(reader, ']');
    }
    return more < 0 ? REFUSED : column_end_list(reader->plan, column);
}

static int read_map(Reader *reader, Column *column) {
    Column *keys = column_at(reader->plan, column->first);
    size_t first = keys->length;
    int more = !is_empty(reader, '}');
    while (more > 0) {
        Text name;
        TRY(name_token(reader, &name));
        TRY(put_text(reader, keys, &name));
        TRY(value(reader, column_at(reader->plan, column->first + 1)));
        more = goes_on(reader, '}');
    }
    return more < 0 ? REFUSED : column_end_map(reader->plan, column, first);
}

static int nested(Reader *reader, Column *column) {
    uint8_t byte = *reader->at;
    if (column->kind == COLUMN_LIST)
        return byte == '[' ? read_list(reader, column) : REFUSED;
    if (byte != '{')
        return REFUSED;
    return column->kind == COLUMN_MAP ? read_map(reader, column) : read_struct(reader, column);
}

static int value(Reader *reader, Column *column) {
    skip_space(reader);
    int null = is_null(reader, column);
    if (null != 0)
        return null < 0 ? REFUSED : 0;
    if (reader->at == reader->end)
        return REFUSED;
    if (column->kind <= COLUMN_MAP) {
        if (reader->depth == DEPTH_MAX)
            return REFUSED;
        reader->depth++;
        TRY(nested(reader, column));
        reader->depth--;
        return 0;
    }
    switch (*reader->at) {
    case '"':
        return put_quoted(reader, column);
    case 't':
    case 'f':
        return put_word(reader, column);
    default:
        return put_number(reader, column);
    }
}

static int skip_nested(Reader *reader, uint8_t end) {
    Text name;
    if (reader->depth == DEPTH_MAX)
        return REFUSED;
    reader->depth++;
    int more = !is_empty(reader, end);
    while (more > 0) {
        if (end == '}')
            TRY(name_token(reader, &name));
        TRY(skip(reader));
        more = goes_on(reader, end);
    }
    reader->depth--;
    return more;
}

static int skip(Reader *reader) {
    Text text;
    Number number;
    skip_space(reader);
    if (reader->at == reader->end)
        return REFUSED;
    switch (*reader->at) {
    case '"':
        return text_token(reader, &text);
    case '{':
        return skip_nested(reader, '}');
    case '[':
        return skip_nested(reader, ']');
    case 't':
        return word(reader, "true", 4);
    case 'f':
        return word(reader, "false", 5);
    case 'n':
        return word(reader, "null", 4);
    default:
        return number_token(reader, &number);
    }
}

int read_json(Plan *plan, const uint8_t *body, size_t size) {
    Reader reader = {.plan = plan, .at = body, .end = body + size};
    if (!is_valid_utf8(body, size))
        return REFUSED;
    skip_space(&reader);
    if (reader.at < reader.end && *reader.at == 'n')
        return REFUSED;
    TRY(value(&reader, plan->columns));
    skip_space(&reader);
    return reader.at == reader.end ? 0 : REFUSED;
}
