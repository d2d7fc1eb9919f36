/* Write rows of `bytes` to rows of a table: out[places[i]] = x[i]; of equal indices the last one counts. */
#include <string.h>

void k_put_rows(long count, long bytes, const void *x, const int64_t *places, void *out)
{
    const char *from = (const char *)x;
    char *const table = (char *)out;
    for (long i = 0; i < count; i++, from += bytes)
        memcpy(table + places[i] * bytes, from, (size_t)bytes);
}
