/* The logarithm of the softmax of each row of x[rows][n]. */
void k_log_softmax(long rows, long n, const float *x, float *out)
{
    for (long r = 0; r < rows; r++, x += n, out += n) {
        float most = -INFINITY, less;
        double sum = 0.0;
        for (long j = 0; j < n; j++)
            most = x[j] > most || x[j] != x[j] ? x[j] : most;
        for (long j = 0; j < n; j++)
            out[j] = k_expf(x[j] - most);
        for (long j = 0; j < n; j++)
            sum += out[j];
        less = (float)log(sum);
        for (long j = 0; j < n; j++)
            out[j] = x[j] - most - less;
    }
}
