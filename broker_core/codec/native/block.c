/* The pool of blocks, and the Python object that returns its block to the pool when it is freed. */
#include "block.h"

#include "module.h"

/* A block may be this many times larger than requested. */
enum { BLOCK_EXCESS_MAX = 2 };

static void pool_remove(BlockPool *pool, size_t index) {
    pool->bytes -= pool->idle[index].capacity;
    pool->count--;
    memmove(&pool->idle[index], &pool->idle[index + 1],
            (pool->count - index) * sizeof pool->idle[0]);
}

/* Sizes in steps of an eighth, so that reads of similar size reuse the same blocks. */
static size_t rounded_size(size_t size) {
    size_t step = BLOCK_SIZE_MIN / 8;
    while (step <= size / 16)
        step *= 2;
    return (size + step - 1) / step * step;
}

int block_take(BlockPool *pool, size_t size, Block *block) {
    size_t best = pool->count;
    for (size_t index = 0; index < pool->count; index++) {
        size_t capacity = pool->idle[index].capacity;
        if (capacity >= size && capacity / BLOCK_EXCESS_MAX <= size &&
            (best == pool->count || capacity < pool->idle[best].capacity))
            best = index;
    }
    if (best < pool->count) {
        *block = pool->idle[best];
        pool_remove(pool, best);
        return 0;
    }
    *block = (Block){NULL, 0};
    if (size > PY_SSIZE_T_MAX / 2)
        return -1;
    size_t capacity = size < BLOCK_SIZE_MIN ? size : rounded_size(size);
    uint8_t *data = PyMem_RawMalloc(capacity);
    if (data == NULL)
        return -1;
    *block = (Block){data, capacity};
    return 0;
}

void block_give(BlockPool *pool, Block *block) {
    Block given = *block;
    *block = (Block){NULL, 0};
    if (given.capacity < BLOCK_SIZE_MIN || given.capacity > POOL_IDLE_BYTES_MAX) {
        PyMem_RawFree(given.data);
        return;
    }
    while (pool->count == POOL_IDLE_BLOCKS_MAX ||
           pool->bytes + given.capacity > POOL_IDLE_BYTES_MAX) {
        PyMem_RawFree(pool->idle[0].data);
        pool_remove(pool, 0);
    }
    pool->idle[pool->count++] = given;
    pool->bytes += given.capacity;
}

void pool_clear(BlockPool *pool) {
    while (pool->count != 0)
        PyMem_RawFree(pool->idle[--pool->count].data);
    pool->bytes = 0;
}

typedef struct {
    PyObject_HEAD
    Block block;
    Py_ssize_t size; /* bytes visible to Python */
    int is_writable;
} BlockObject;

static int block_object_buffer(PyObject *self, Py_buffer *view, int flags) {
    BlockObject *object = (BlockObject *)self;
    return PyBuffer_FillInfo(view, self, object->block.data, object->size,
                             !object->is_writable, flags);
}

static void block_object_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Block *block = &((BlockObject *)self)->block;
    CodecState *state = PyType_GetModuleState(type);
    if (state != NULL) {
        block_give(&state->pool, block);
    } else { /* the interpreter is shutting down */
        PyErr_Clear();
        PyMem_RawFree(block->data);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

/* Moves `size` bytes into a smaller block when the present one is mostly empty, because results may
 * be long-lived. */
static void block_shrink(BlockPool *pool, Block *block, size_t size) {
    Block smaller;
    if (block->capacity / BLOCK_EXCESS_MAX <= size || block_take(pool, size, &smaller) < 0)
        return;
    memcpy(smaller.data, block->data, size);
    block_give(pool, block);
    *block = smaller;
}

/* A memoryview of the first `size` bytes. Takes ownership of the block, even on failure. */
static PyObject *view_of(BlockPool *pool, PyObject *block_type, Block *block, size_t size,
                         int is_writable) {
    BlockObject *object = (BlockObject *)PyType_GenericAlloc((PyTypeObject *)block_type, 0);
    if (object == NULL) {
        block_give(pool, block);
        return NULL;
    }
    object->block = *block;
    object->size = (Py_ssize_t)size;
    object->is_writable = is_writable;
    *block = (Block){NULL, 0};
    PyObject *view = PyMemoryView_FromObject((PyObject *)object);
    Py_DECREF(object);
    return view;
}

PyObject *block_view(BlockPool *pool, PyObject *block_type, Block *block, size_t size) {
    if (size < BLOCK_SIZE_MIN) {
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)block->data, (Py_ssize_t)size);
        block_give(pool, block);
        return bytes;
    }
    block_shrink(pool, block, size);
    return view_of(pool, block_type, block, size, 0);
}

static PyObject *codec_new_buffer(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"size", NULL};
    CodecState *state = PyModule_GetState(module);
    int64_t size;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&:new_buffer", names, to_bounded, &size))
        return NULL;
    if (size < 0)
        return raise_value_error(state, REASON_BAD_RANGE);
    Block block;
    /* The interpreter's allocator returns no memory for size 0. */
    if (block_take(&state->pool, size == 0 ? 1 : (size_t)size, &block) < 0)
        return PyErr_NoMemory();
    return view_of(&state->pool, state->block_type, &block, (size_t)size, 1);
}

PyMethodDef block_functions[] = {
    NATIVE_FUNCTION(
        new_buffer, NAMED_ARGUMENTS,
        "size",
        "Writable memory whose first contents are undefined."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_bf_getbuffer, (void *)block_object_buffer},
    {Py_tp_dealloc, (void *)block_object_free},
    {Py_tp_doc, "Bytes of a result; read it through a memoryview."},
    {0, NULL},
};

PyType_Spec block_type_spec = {
    .name = "broker_core.codec.native._native.Block",
    .basicsize = sizeof(BlockObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};
