/* Softmax of a row, in place; `safe` gives 0 for a row of minus infinities. */
#include <string.h>

void k_softmax_row(long n, float *x, int safe)
{
    float most = -INFINITY, lanes[8] = {0}, sum = 0.0f;
    long i = 0;
    for (long j = 0; j < n; j++)
        most = x[j] > most || x[j] != x[j] ? x[j] : most;
    if (safe && most == -INFINITY) {
        for (long j = 0; j < n; j++)
            x[j] = 0.0f;
        return;
    }
    for (long j = 0; j < n; j++)
        x[j] = k_expf(x[j] - most);
    for (; i + 8 <= n; i += 8)
        for (long l = 0; l < 8; l++)
            lanes[l] += x[i + l];
    for (; i < n; i++)
        sum += x[i];
    for (long l = 0; l < 8; l++)
        sum += lanes[l];
    sum = 1.0f / sum;
    for (long j = 0; j < n; j++)
        x[j] *= sum;
}

void k_softmax(long rows, long n, const float *x, int safe, float *out)
{
    memcpy(out, x, (size_t)(rows * n) * sizeof(float));
    for (long r = 0; r < rows; r++)
        k_softmax_row(n, out + r * n, safe);
}
