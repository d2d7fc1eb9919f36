/* The number of rows of all steps of a packed sequence. */
static inline long k_total_rows(long steps, const long *sizes)
{
    long total = 0;
    for (long t = 0; t < steps; t++)
        total += sizes[t];
    return total;
}
