/* CRC-32 (IEEE, as zlib) with the fastest method that this processor supports. */
#ifndef RMQ_NATIVE_CRC_H
#define RMQ_NATIVE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables and picks the method. Call once before anything else; repeating is harmless. */
void crc_prepare(void);

/* CRC of `size` bytes following bytes whose CRC is `crc` (0 at the start), as zlib.crc32. */
extern uint32_t (*crc_update)(uint32_t crc, const uint8_t *data, size_t size);

/* The CRC by each supported method, for tests; returns the number of methods. */
size_t crc_by_every_method(const uint8_t *data, size_t size, uint32_t found[3]);

/* CRC of A followed by B, from the CRC of each; `size` is the length of B. */
extern uint32_t (*crc_join)(uint32_t crc_a, uint32_t crc_b, size_t size);

#endif
