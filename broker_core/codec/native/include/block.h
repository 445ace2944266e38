/* A pool of memory blocks for large results: page faults on fresh pages cost more than decoding.
 *
 * A block is taken from the pool of the module and is owned by its holder. `block_view` turns it
 * into a read-only memoryview; the block returns to the pool when the last reference to that (an
 * Arrow buffer, a slice) is released. The pool keeps a bounded number of idle bytes and evicts the
 * oldest block first. Everything except writing into a block needs the GIL.
 */
#ifndef RMQ_NATIVE_BLOCK_H
#define RMQ_NATIVE_BLOCK_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

enum {
    BLOCK_SIZE_MIN = 32 * 1024, /* smaller results are bytes objects */
    POOL_IDLE_BYTES_MAX = 32 << 20,
    POOL_IDLE_BLOCKS_MAX = 64,
};

typedef struct {
    uint8_t *data;
    size_t capacity;
} Block;

typedef struct {
    Block idle[POOL_IDLE_BLOCKS_MAX]; /* oldest first */
    size_t count, bytes;
} BlockPool;

/* A block of at least `size` bytes; 0, or -1 when there is no memory (no exception is set). */
int block_take(BlockPool *pool, size_t size, Block *block);

/* Returns a block, which may be empty, to the pool; it is empty afterwards. */
void block_give(BlockPool *pool, Block *block);

/* The first `size` bytes as bytes or memoryview. Takes ownership of the block, even on failure. */
PyObject *block_view(BlockPool *pool, PyObject *block_type, Block *block, size_t size);

/* Free all idle blocks. */
void pool_clear(BlockPool *pool);

/* The type behind the memoryviews; it holds a reference to the module and so to its pool. */
extern PyType_Spec block_type_spec;

#endif
