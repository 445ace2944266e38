/* Protobuf bodies to columns, as Protobuf's library and protobuf/bodies.py read them.
 *
 * All fields of a message are steps; those that are not selected have no column and are checked.
 * Left to Python: groups, selected fields that occur twice, two members of a oneof, fields with
 * another wire type than their own, unknown values of enums.
 */
#include "base128.h"

#include "utf8.h"

/* Numbers are those of protobuf_plan.py; up to PB_BYTES those of FieldDescriptor.TYPE_…. */
typedef enum {
    PB_DOUBLE = 1,
    PB_FLOAT = 2,
    PB_INT64 = 3,
    PB_UINT64 = 4,
    PB_INT32 = 5,
    PB_FIXED64 = 6,
    PB_FIXED32 = 7,
    PB_BOOL = 8,
    PB_STRING = 9,
    PB_MESSAGE = 11, /* child: its fields as PB_FIELDS, or it is read as a timestamp */
    PB_BYTES = 12,
    PB_UINT32 = 13,
    PB_ENUM = 14, /* children: symbols with their numbers */
    PB_SFIXED32 = 15,
    PB_SFIXED64 = 16,
    PB_SINT32 = 17,
    PB_SINT64 = 18,
    PB_FIELDS = 32,
} PbKind;

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_SIZED = 2, WIRE_32 = 5 };
/* Of `more`; the oneof, if any, counts from 1 in the bits above. */
enum { IS_REPEATED = 1, HAS_PRESENCE = 2, ONEOF_SHIFT = 8 };

static int message(Reader *reader, const Step *fields, Column *column);

/* Of tags and sizes: the library refuses longer forms, also of small numbers. */
enum { SHORT_BITS = 35 };

static int take_sized(Reader *reader, const uint8_t **data, uint64_t *size) {
    TRY(read_base128(reader, SHORT_BITS, size));
    return take(reader, *size, data);
}

static int wire_type(int64_t kind) {
    switch (kind) {
    case PB_DOUBLE:
    case PB_FIXED64:
    case PB_SFIXED64:
        return WIRE_64;
    case PB_FLOAT:
    case PB_FIXED32:
    case PB_SFIXED32:
        return WIRE_32;
    case PB_STRING:
    case PB_BYTES:
    case PB_MESSAGE:
        return WIRE_SIZED;
    default:
        return WIRE_VARINT;
    }
}

static int put_symbol(Reader *reader, const Step *step, Column *column, int32_t number) {
    const Step *symbols = &reader->plan->steps[step->first];
    for (size_t index = 0; index < step->count; index++)
        if (symbols[index].number == number)
            return column_bytes(reader->plan, column, symbols[index].name,
                                symbols[index].name_size);
    return REFUSED;
}

/* The bits of a number, from its field, to a column. */
static int put_bits(Reader *reader, const Step *step, Column *column, uint64_t bits) {
    Plan *plan = reader->plan;
    uint32_t low = (uint32_t)bits;
    switch (step->kind) {
    case PB_DOUBLE: {
        double real;
        memcpy(&real, &bits, 8);
        return column_real(plan, column, real);
    }
    case PB_FLOAT: {
        float real;
        memcpy(&real, &low, 4);
        return column_real(plan, column, (double)real);
    }
    case PB_INT64:
    case PB_SFIXED64:
        return column_integer(plan, column, (int64_t)bits);
    case PB_UINT64:
    case PB_FIXED64:
        return column_unsigned(plan, column, bits);
    case PB_INT32:
    case PB_SFIXED32:
        return column_integer(plan, column, (int32_t)low);
    case PB_UINT32:
    case PB_FIXED32:
        return column_integer(plan, column, low);
    case PB_SINT32:
        return column_integer(plan, column, (int32_t)(low >> 1 ^ (0 - (low & 1))));
    case PB_SINT64:
        return column_integer(plan, column, from_zigzag(bits));
    case PB_BOOL:
        return column_boolean(plan, column, bits != 0);
    case PB_ENUM:
        return put_symbol(reader, step, column, (int32_t)low);
    default:
        return REFUSED;
    }
}

static int number(Reader *reader, const Step *step, Column *column) {
    const uint8_t *data;
    uint64_t bits;
    switch (wire_type(step->kind)) {
    case WIRE_64:
        TRY(take(reader, 8, &data));
        bits = __builtin_bswap64(load_u64(data));
        break;
    case WIRE_32:
        TRY(take(reader, 4, &data));
        bits = __builtin_bswap32(load_u32(data));
        break;
    default:
        TRY(read_base128(reader, LONG_BITS, &bits));
    }
    return column == NULL ? 0 : put_bits(reader, step, column, bits);
}

/* google.protobuf.Timestamp: seconds are field 1, nanoseconds field 2. */
static int timestamp(Reader *reader, Column *column) {
    int64_t seconds = 0, nanos = 0, micros;
    while (reader->at < reader->end) {
        uint64_t bits;
        uint8_t tag = *reader->at++;
        TRY(read_base128(reader, LONG_BITS, &bits));
        if (tag == (1 << 3 | WIRE_VARINT))
            seconds = (int64_t)bits;
        else if (tag == (2 << 3 | WIRE_VARINT))
            nanos = (int32_t)(uint32_t)bits;
        else
            return REFUSED;
    }
    if (nanos < 0 || nanos > 999999999)
        return REFUSED;
    TRY(joined_micros(seconds, nanos / 1000, &micros));
    return column_micros(reader->plan, column, micros);
}

static int sized(Reader *reader, const Step *step, Column *column) {
    const uint8_t *data;
    uint64_t size;
    TRY(take_sized(reader, &data, &size));
    if (step->kind != PB_MESSAGE) {
        if (step->kind == PB_STRING && !is_valid_utf8(data, size))
            return REFUSED;
        return column == NULL ? 0 : column_bytes(reader->plan, column, data, size);
    }
    if (reader->depth == DEPTH_MAX)
        return REFUSED;
    Reader inner = {.plan = reader->plan, .at = data, .end = data + size,
                    .depth = reader->depth + 1};
    if (column != NULL && column->kind == COLUMN_TIMESTAMP)
        return timestamp(&inner, column);
    return message(&inner, &reader->plan->steps[step->first], column);
}

static int single(Reader *reader, const Step *step, Column *column) {
    return wire_type(step->kind) == WIRE_SIZED ? sized(reader, step, column)
                                               : number(reader, step, column);
}

/* Numbers in one piece. */
static int packed(Reader *reader, const Step *step, Column *column) {
    const uint8_t *data;
    uint64_t size;
    TRY(take_sized(reader, &data, &size));
    Reader inner = {.plan = reader->plan, .at = data, .end = data + size};
    while (inner.at < inner.end)
        TRY(number(&inner, step, column));
    return 0;
}

static int field(Reader *reader, const Step *step, int wire, size_t length) {
    Column *column = step->column < 0 ? NULL : column_at(reader->plan, (size_t)step->column);
    int own = wire_type(step->kind);
    if (column != NULL && column->length != length)
        return REFUSED;
    if (step->more & IS_REPEATED) {
        if (column != NULL)
            column = column_at(reader->plan, column->first);
        if (wire == WIRE_SIZED && own != WIRE_SIZED)
            return packed(reader, step, column);
    }
    return wire == own ? single(reader, step, column) : REFUSED;
}

/* A field that the message does not have. */
static int unknown(Reader *reader, int wire) {
    const uint8_t *data;
    uint64_t number;
    switch (wire) {
    case WIRE_VARINT:
        return read_base128(reader, LONG_BITS, &number);
    case WIRE_64:
        return take(reader, 8, &data);
    case WIRE_32:
        return take(reader, 4, &data);
    case WIRE_SIZED:
        return take_sized(reader, &data, &number);
    default:
        return REFUSED;
    }
}

/* A field that did not occur. */
static int absent(Reader *reader, const Step *step, Column *column) {
    if (step->more & IS_REPEATED)
        return column_end_list(reader->plan, column);
    if (step->more & HAS_PRESENCE)
        return column_null(reader->plan, column);
    if (step->kind == PB_STRING || step->kind == PB_BYTES)
        return column_bytes(reader->plan, column, NULL, 0);
    return put_bits(reader, step, column, 0);
}

static const Step *find(const Step *steps, size_t count, uint64_t number, size_t *hint) {
    size_t index = *hint;
    for (size_t tried = 0; tried < count; tried++, index++) {
        if (index >= count)
            index = 0;
        if ((uint64_t)steps[index].number == number) {
            /* A repeated field may follow itself. */
            *hint = index + !(steps[index].more & IS_REPEATED);
            return &steps[index];
        }
    }
    return NULL;
}

static int message(Reader *reader, const Step *fields, Column *column) {
    const Step *steps = &reader->plan->steps[fields->first];
    size_t length = column == NULL ? 0 : column->length, hint = 0;
    uint64_t oneofs = 0;
    while (reader->at < reader->end) {
        uint64_t tag;
        TRY(read_base128(reader, SHORT_BITS, &tag));
        if (tag >> 3 == 0 || tag > UINT32_MAX)
            return REFUSED;
        const Step *step = find(steps, fields->count, tag >> 3, &hint);
        if (step == NULL) {
            TRY(unknown(reader, (int)(tag & 7)));
            continue;
        }
        if (step->more >> ONEOF_SHIFT) {
            uint64_t bit = (uint64_t)1 << ((step->more >> ONEOF_SHIFT) - 1);
            if (oneofs & bit)
                return REFUSED;
            oneofs |= bit;
        }
        TRY(field(reader, step, (int)(tag & 7), length));
    }
    if (column == NULL)
        return 0;
    for (size_t index = 0; index < fields->count; index++) {
        if (steps[index].column < 0)
            continue;
        Column *found = column_at(reader->plan, (size_t)steps[index].column);
        if (found->length == length)
            TRY(absent(reader, &steps[index], found));
    }
    return column_end_struct(reader->plan, column);
}

int read_protobuf(Plan *plan, const uint8_t *body, size_t size) {
    Reader reader = {.plan = plan, .at = body, .end = body + size};
    return message(&reader, &plan->steps[0], plan->columns);
}
