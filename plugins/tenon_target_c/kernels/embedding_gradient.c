/* For T = f32 f64. */
/* The sums of the rows of grad[count][n] with each index, in out[rows][n]; the index `padding` is ignored. Returns
   1 if an index is outside of the table. */
int k_embedding_gradient_$(long count, long rows, long n, const T *grad, const int64_t *index, long padding,
                           T *out)
{
    for (long i = 0; i < rows * n; i++)
        out[i] = 0;
    for (long i = 0; i < count; i++, grad += n) {
        const int64_t r = index[i];
        if (r < 0 || r >= rows)
            return 1;
        if (r == padding)
            continue;
        for (long j = 0; j < n; j++)
            out[r * n + j] += grad[j];
    }
    return 0;
}
