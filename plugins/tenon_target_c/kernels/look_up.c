/* Rows of a table: out[i] = x[index[i]] for rows of `bytes`; a negative index counts from the end if `wrap`.
   Returns 1 if an index is outside of the table. */
#include <string.h>

int k_look_up(long count, long rows, long bytes, const void *x, const int64_t *index, int wrap, void *out)
{
    const char *const table = (const char *)x;
    char *to = (char *)out;
    for (long i = 0; i < count; i++, to += bytes) {
        const int64_t r = index[i] < 0 && wrap ? index[i] + rows : index[i];
        if (r < 0 || r >= rows)
            return 1;
        memcpy(to, table + r * bytes, (size_t)bytes);
    }
    return 0;
}
