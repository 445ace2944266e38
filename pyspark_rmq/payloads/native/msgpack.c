/* Msgpack bodies to columns, by the rules of object_values.py.
 *
 * Left to Python: keys that are no texts, keys that occur twice, extension types other than
 * timestamps, and floats in decimals.
 */
#include "columns.h"

#include "utf8.h"

static int value(Reader *reader, Column *column);

/* What the first byte of a value says; numbers are read, of others the size or the count. */
typedef enum { NIL, BOOLEAN, SIGNED, UNSIGNED, REAL, TEXT, BYTES, LIST, MAP, TIME, UNKNOWN } Shape;

typedef struct {
    Shape shape;
    uint64_t number; /* value, size or count */
    double real;
    int64_t seconds;
    uint32_t nanos;
} Item;

static int big_endian(Reader *reader, int size, uint64_t *number) {
    if (left(reader) < (size_t)size)
        return REFUSED;
    uint64_t found = 0;
    for (int index = 0; index < size; index++)
        found = found << 8 | reader->at[index];
    reader->at += size;
    *number = found;
    return 0;
}

static int sized(Reader *reader, Item *item, Shape shape, int size) {
    item->shape = shape;
    return big_endian(reader, size, &item->number);
}

static int signed_item(Reader *reader, Item *item, int size) {
    TRY(sized(reader, item, SIGNED, size));
    int shift = 64 - 8 * size;
    item->number = (uint64_t)((int64_t)(item->number << shift) >> shift);
    return 0;
}

static int real_item(Reader *reader, Item *item, int size) {
    TRY(sized(reader, item, REAL, size));
    if (size == 8) {
        memcpy(&item->real, &item->number, 8);
    } else {
        uint32_t bits = (uint32_t)item->number;
        float real;
        memcpy(&real, &bits, 4);
        item->real = (double)real;
    }
    return 0;
}

/* An extension of `size` bytes, of which only timestamps are read. */
static int extension(Reader *reader, Item *item, uint64_t size) {
    uint64_t type, number;
    TRY(big_endian(reader, 1, &type));
    if (type != 0xFF)
        return REFUSED;
    item->shape = TIME;
    if (size == 4) {
        TRY(big_endian(reader, 4, &number));
        item->seconds = (int64_t)number;
        item->nanos = 0;
    } else if (size == 8) {
        TRY(big_endian(reader, 8, &number));
        item->seconds = (int64_t)(number & (((uint64_t)1 << 34) - 1));
        item->nanos = (uint32_t)(number >> 34);
    } else if (size == 12) {
        TRY(big_endian(reader, 4, &number));
        item->nanos = (uint32_t)number;
        TRY(big_endian(reader, 8, &number));
        item->seconds = (int64_t)number;
    } else {
        return REFUSED;
    }
    return item->nanos < 1000000000 ? 0 : REFUSED;
}

static int sized_extension(Reader *reader, Item *item, int size) {
    uint64_t bytes;
    TRY(big_endian(reader, size, &bytes));
    return extension(reader, item, bytes);
}

static int next(Reader *reader, Item *item) {
    if (reader->at == reader->end)
        return REFUSED;
    uint8_t byte = *reader->at++;
    item->shape = UNKNOWN;
    if (byte < 0x80 || byte >= 0xE0) {
        item->shape = SIGNED;
        item->number = (uint64_t)(int64_t)(int8_t)byte;
        return 0;
    }
    if (byte < 0xC0) {
        item->shape = byte < 0x90 ? MAP : byte < 0xA0 ? LIST : TEXT;
        item->number = byte < 0xA0 ? byte & 0x0F : byte & 0x1F;
        return 0;
    }
    switch (byte) {
    case 0xC0: item->shape = NIL; return 0;
    case 0xC2: case 0xC3: item->shape = BOOLEAN; item->number = byte & 1; return 0;
    case 0xC4: return sized(reader, item, BYTES, 1);
    case 0xC5: return sized(reader, item, BYTES, 2);
    case 0xC6: return sized(reader, item, BYTES, 4);
    case 0xC7: return sized_extension(reader, item, 1);
    case 0xC8: return sized_extension(reader, item, 2);
    case 0xC9: return sized_extension(reader, item, 4);
    case 0xCA: return real_item(reader, item, 4);
    case 0xCB: return real_item(reader, item, 8);
    case 0xCC: return sized(reader, item, UNSIGNED, 1);
    case 0xCD: return sized(reader, item, UNSIGNED, 2);
    case 0xCE: return sized(reader, item, UNSIGNED, 4);
    case 0xCF: return sized(reader, item, UNSIGNED, 8);
    case 0xD0: return signed_item(reader, item, 1);
    case 0xD1: return signed_item(reader, item, 2);
    case 0xD2: return signed_item(reader, item, 4);
    case 0xD3: return signed_item(reader, item, 8);
    case 0xD6: return extension(reader, item, 4);
    case 0xD7: return extension(reader, item, 8);
    case 0xD9: return sized(reader, item, TEXT, 1);
    case 0xDA: return sized(reader, item, TEXT, 2);
    case 0xDB: return sized(reader, item, TEXT, 4);
    case 0xDC: return sized(reader, item, LIST, 2);
    case 0xDD: return sized(reader, item, LIST, 4);
    case 0xDE: return sized(reader, item, MAP, 2);
    case 0xDF: return sized(reader, item, MAP, 4);
    default: return REFUSED;
    }
}

/* The bytes of a text or of binary data. */
static int bytes_of(Reader *reader, const Item *item, const uint8_t **data) {
    if (item->number > left(reader))
        return REFUSED;
    *data = reader->at;
    reader->at += item->number;
    return item->shape == TEXT && !is_valid_utf8(*data, item->number) ? REFUSED : 0;
}

static int key(Reader *reader, Item *item, const uint8_t **data) {
    TRY(next(reader, item));
    return item->shape == TEXT ? bytes_of(reader, item, data) : REFUSED;
}

static int skip(Reader *reader) {
    Item item;
    const uint8_t *data;
    TRY(next(reader, &item));
    if (item.shape == TEXT || item.shape == BYTES)
        return bytes_of(reader, &item, &data);
    if (item.shape != LIST && item.shape != MAP)
        return 0;
    if (reader->depth == DEPTH_MAX || item.number > left(reader))
        return REFUSED;
    reader->depth++;
    for (uint64_t count = item.number; count > 0; count--) {
        Item name;
        if (item.shape == MAP)
            TRY(key(reader, &name, &data));
        TRY(skip(reader));
    }
    reader->depth--;
    return 0;
}

static int read_struct(Reader *reader, Column *column, uint64_t count) {
    size_t hint = 0;
    for (; count > 0; count--) {
        Item name;
        const uint8_t *data;
        TRY(key(reader, &name, &data));
        Column *field = column_field(reader->plan, column, data, name.number, &hint);
        if (field == NULL) {
            TRY(skip(reader));
        } else {
            if (field->length != column->length)
                return REFUSED;
            TRY(value(reader, field));
        }
    }
    return column_end_struct(reader->plan, column);
}

static int read_map(Reader *reader, Column *column, uint64_t count) {
    Column *keys = column_at(reader->plan, column->first);
    size_t first = keys->length;
    for (; count > 0; count--) {
        Item name;
        const uint8_t *data;
        TRY(key(reader, &name, &data));
        TRY(column_bytes(reader->plan, keys, data, name.number));
        TRY(value(reader, column_at(reader->plan, column->first + 1)));
    }
    return column_end_map(reader->plan, column, first);
}

static int read_list(Reader *reader, Column *column, uint64_t count) {
    for (; count > 0; count--)
        TRY(value(reader, column_at(reader->plan, column->first)));
    return column_end_list(reader->plan, column);
}

static int nested(Reader *reader, Column *column, const Item *item) {
    /* Every item takes a byte. */
    if (item->shape != (column->kind == COLUMN_LIST ? LIST : MAP) ||
        reader->depth == DEPTH_MAX || item->number > left(reader))
        return REFUSED;
    reader->depth++;
    if (column->kind == COLUMN_LIST)
        TRY(read_list(reader, column, item->number));
    else if (column->kind == COLUMN_MAP)
        TRY(read_map(reader, column, item->number));
    else
        TRY(read_struct(reader, column, item->number));
    reader->depth--;
    return 0;
}

static int put_whole(Reader *reader, Column *column, const Item *item) {
    if (column->kind == COLUMN_DATE)
        return REFUSED;
    if (column->kind == COLUMN_TIMESTAMP) {
        int64_t micros;
        if (item->shape == UNSIGNED && item->number > INT64_MAX)
            return REFUSED;
        TRY(joined_micros((int64_t)item->number, 0, &micros));
        return column_micros(reader->plan, column, micros);
    }
    if (item->shape == UNSIGNED)
        return column_unsigned(reader->plan, column, item->number);
    return column_integer(reader->plan, column, (int64_t)item->number);
}

static int value(Reader *reader, Column *column) {
    Item item;
    const uint8_t *data;
    int64_t micros;
    TRY(next(reader, &item));
    if (item.shape == NIL)
        return column_null(reader->plan, column);
    if (column->kind <= COLUMN_MAP)
        return nested(reader, column, &item);
    switch (item.shape) {
    case BOOLEAN:
        return column_boolean(reader->plan, column, (int)item.number);
    case SIGNED:
    case UNSIGNED:
        return put_whole(reader, column, &item);
    case REAL:
        return column_real(reader->plan, column, item.real);
    case TEXT:
        TRY(bytes_of(reader, &item, &data));
        if (column->kind == COLUMN_STRING)
            return column_bytes(reader->plan, column, data, item.number);
        return column_parsed(reader->plan, column, data, item.number);
    case BYTES:
        TRY(bytes_of(reader, &item, &data));
        if (column->kind != COLUMN_BINARY)
            return REFUSED;
        return column_bytes(reader->plan, column, data, item.number);
    case TIME:
        if (column->kind != COLUMN_TIMESTAMP)
            return REFUSED;
        TRY(joined_micros(item.seconds, item.nanos / 1000, &micros));
        return column_micros(reader->plan, column, micros);
    default:
        return REFUSED;
    }
}

int read_msgpack(Plan *plan, const uint8_t *body, size_t size) {
    Reader reader = {.plan = plan, .at = body, .end = body + size};
    if (size == 0 || *body == 0xC0)
        return REFUSED;
    TRY(value(&reader, plan->columns));
    return reader.at == reader.end ? 0 : REFUSED;
}
