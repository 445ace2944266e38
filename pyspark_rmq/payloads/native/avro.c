/* Avro bodies to columns, by the rules of avro/bodies.py.
 *
 * A step is a type of the schema. Those of fields that are not selected have no column and check
 * the same as the others. Schemas are at most 64 types deep, so recursion is bounded.
 */
#include "base128.h"

#include "utf8.h"

/* Numbers are those of avro_plan.py. */
typedef enum {
    AVRO_NULL,
    AVRO_BOOLEAN,
    AVRO_INT,
    AVRO_LONG,
    AVRO_FLOAT,
    AVRO_DOUBLE,
    AVRO_BYTES,
    AVRO_STRING,
    AVRO_FIXED,   /* number: size */
    AVRO_ENUM,    /* children: symbols */
    AVRO_RECORD,  /* children: fields */
    AVRO_ARRAY,   /* child: items */
    AVRO_MAP,     /* child: values */
    AVRO_UNION,   /* children: branches */
} AvroKind;

enum { FRAME_SIZE = 5 };

static int value(Reader *reader, const Step *step);

static inline Column *target(Reader *reader, const Step *step) {
    return step->column < 0 ? NULL : column_at(reader->plan, (size_t)step->column);
}

static inline const Step *child(Reader *reader, const Step *step, size_t index) {
    return &reader->plan->steps[step->first + index];
}

static inline int read_long(Reader *reader, int64_t *number) {
    uint64_t bits;
    TRY(read_base128(reader, LONG_BITS, &bits));
    *number = from_zigzag(bits);
    return 0;
}

static int take_sized(Reader *reader, const uint8_t **data, int64_t *size) {
    TRY(read_long(reader, size));
    return *size < 0 ? REFUSED : take(reader, (uint64_t)*size, data);
}

static int whole(Reader *reader, const Step *step) {
    int64_t number;
    TRY(read_long(reader, &number));
    if (step->kind == AVRO_INT && (number < INT32_MIN || number > INT32_MAX))
        return REFUSED;
    Column *column = target(reader, step);
    if (column == NULL)
        return 0;
    if (column->kind != COLUMN_TIMESTAMP && column->kind != COLUMN_LOCAL_TIME)
        return column_integer(reader->plan, column, number);
    /* `more`: microseconds of the unit. */
    if (__builtin_mul_overflow(number, step->more, &number))
        return REFUSED;
    return column_micros(reader->plan, column, number);
}

static int real(Reader *reader, const Step *step) {
    const uint8_t *data;
    double number;
    if (step->kind == AVRO_FLOAT) {
        TRY(take(reader, 4, &data));
        uint32_t bits = __builtin_bswap32(load_u32(data));
        float narrow;
        memcpy(&narrow, &bits, 4);
        number = (double)narrow;
    } else {
        TRY(take(reader, 8, &data));
        uint64_t bits = __builtin_bswap64(load_u64(data));
        memcpy(&number, &bits, 8);
    }
    Column *column = target(reader, step);
    return column == NULL ? 0 : column_real(reader->plan, column, number);
}

/* `more`: the scale of the schema, which is not above that of the column. */
static int put_decimal(Reader *reader, const Step *step, Column *column, const uint8_t *data,
                       int64_t size) {
    if (size < 1 || size > 16)
        return REFUSED;
    unsigned __int128 bits = data[0] >= 0x80 ? ~(unsigned __int128)0 : 0;
    for (int64_t index = 0; index < size; index++)
        bits = bits << 8 | data[index];
    __int128 unscaled;
    TRY(scaled_up((__int128)bits, column->scale - (int)step->more, &unscaled));
    return column_decimal(reader->plan, column, unscaled);
}

static int bytes(Reader *reader, const Step *step) {
    const uint8_t *data;
    int64_t size = step->number;
    if (step->kind == AVRO_FIXED)
        TRY(take(reader, (uint64_t)size, &data));
    else
        TRY(take_sized(reader, &data, &size));
    if (step->kind == AVRO_STRING && !is_valid_utf8(data, (size_t)size))
        return REFUSED;
    Column *column = target(reader, step);
    if (column == NULL)
        return 0;
    if (column->kind == COLUMN_DECIMAL)
        return put_decimal(reader, step, column, data, size);
    return column_bytes(reader->plan, column, data, (size_t)size);
}

static int boolean(Reader *reader, const Step *step) {
    const uint8_t *data;
    TRY(take(reader, 1, &data));
    if (*data > 1)
        return REFUSED;
    Column *column = target(reader, step);
    return column == NULL ? 0 : column_boolean(reader->plan, column, *data);
}

static int symbol(Reader *reader, const Step *step) {
    int64_t number;
    TRY(read_long(reader, &number));
    if (number < 0 || (uint64_t)number >= step->count)
        return REFUSED;
    Column *column = target(reader, step);
    const Step *found = child(reader, step, (size_t)number);
    return column == NULL ? 0 : column_bytes(reader->plan, column, found->name, found->name_size);
}

static int record(Reader *reader, const Step *step) {
    Column *column = target(reader, step);
    for (size_t index = 0; index < step->count; index++)
        TRY(value(reader, child(reader, step, index)));
    return column == NULL ? 0 : column_end_struct(reader->plan, column);
}

/* The number of items of a block; every item takes a byte. */
static int block(Reader *reader, int64_t *count) {
    int64_t size;
    TRY(read_long(reader, count));
    if (*count == INT64_MIN)
        return REFUSED;
    if (*count < 0) {
        *count = -*count;
        TRY(read_long(reader, &size));
    }
    return (uint64_t)*count > left(reader) ? REFUSED : 0;
}

static int items(Reader *reader, const Step *step) {
    Column *column = target(reader, step);
    Column *keys = column != NULL && column->kind == COLUMN_MAP
                       ? column_at(reader->plan, column->first) : NULL;
    size_t first = keys == NULL ? 0 : keys->length;
    int64_t count;
    TRY(block(reader, &count));
    while (count > 0) {
        for (; count > 0; count--) {
            if (step->kind == AVRO_MAP) {
                const uint8_t *data;
                int64_t size;
                TRY(take_sized(reader, &data, &size));
                if (!is_valid_utf8(data, (size_t)size))
                    return REFUSED;
                if (keys != NULL)
                    TRY(column_bytes(reader->plan, keys, data, (size_t)size));
            }
            TRY(value(reader, child(reader, step, 0)));
        }
        TRY(block(reader, &count));
    }
    if (column == NULL)
        return 0;
    return keys == NULL ? column_end_list(reader->plan, column)
                        : column_end_map(reader->plan, column, first);
}

static int branch(Reader *reader, const Step *step) {
    int64_t number;
    TRY(read_long(reader, &number));
    if (number < 0 || (uint64_t)number >= step->count)
        return REFUSED;
    return value(reader, child(reader, step, (size_t)number));
}

static int value(Reader *reader, const Step *step) {
    switch (step->kind) {
    case AVRO_NULL: {
        Column *column = target(reader, step);
        return column == NULL ? 0 : column_null(reader->plan, column);
    }
    case AVRO_BOOLEAN:
        return boolean(reader, step);
    case AVRO_INT:
    case AVRO_LONG:
        return whole(reader, step);
    case AVRO_FLOAT:
    case AVRO_DOUBLE:
        return real(reader, step);
    case AVRO_BYTES:
    case AVRO_STRING:
    case AVRO_FIXED:
        return bytes(reader, step);
    case AVRO_ENUM:
        return symbol(reader, step);
    case AVRO_RECORD:
        return record(reader, step);
    case AVRO_ARRAY:
    case AVRO_MAP:
        return items(reader, step);
    case AVRO_UNION:
        return branch(reader, step);
    default:
        return REFUSED;
    }
}

static int body_of(Plan *plan, size_t step, const uint8_t *body, size_t size) {
    Reader reader = {.plan = plan, .at = body, .end = body + size};
    TRY(value(&reader, &plan->steps[step]));
    return reader.at == reader.end ? 0 : REFUSED;
}

static const Root *root_of(const Plan *plan, int64_t id) {
    const Root *otherwise = NULL;
    for (size_t index = 0; index < plan->root_count; index++) {
        if (plan->roots[index].id == id)
            return &plan->roots[index];
        if (plan->roots[index].id < 0)
            otherwise = &plan->roots[index];
    }
    return otherwise;
}

static int body_or_null(Plan *plan, const Root *root, const uint8_t *body, size_t size) {
    size_t length = plan->columns->length, nulls = plan->columns->null_count;
    if (root == NULL)
        return REFUSED;
    TRY(body_of(plan, root->reads, body, size));
    /* A union of null and a record. */
    return plan->columns->length == length + 1 && plan->columns->null_count == nulls ? 0 : REFUSED;
}

int read_avro(Plan *plan, const uint8_t *body, size_t size) {
    int is_framed = size >= FRAME_SIZE && body[0] == 0;
    const Root *plain = root_of(plan, -1);
    if (plan->framing == FRAME_NEVER || (plan->framing == FRAME_AUTO && !is_framed))
        return body_or_null(plan, plain, body, size);
    if (!is_framed)
        return REFUSED;
    const Root *named = root_of(plan, load_u32(body + 1));
    body += FRAME_SIZE;
    size -= FRAME_SIZE;
    if (plan->framing == FRAME_ALWAYS)
        return body_or_null(plan, named, body, size);
    /* A body without a frame may begin with a zero byte, too. */
    size_t length = plan->columns->length;
    int is_named = named != NULL && body_of(plan, named->skips, body, size) == 0;
    if (body_or_null(plan, plain, body - FRAME_SIZE, size + FRAME_SIZE) == 0)
        return is_named ? REFUSED : 0;
    if (plan->no_memory || !is_named)
        return REFUSED;
    /* Rare forms are refused, and valid. */
    if (plain != NULL && body_of(plan, plain->skips, body - FRAME_SIZE, size + FRAME_SIZE) == 0)
        return REFUSED;
    column_truncate(plan, plan->columns, length);
    return body_or_null(plan, named, body, size);
}
