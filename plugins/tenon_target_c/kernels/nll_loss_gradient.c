/* The gradient of `k_nll_loss` for x: minus grad at each target; grad has one number, or one for each target if
   `reduction` is 0. */
int k_nll_loss_gradient(long outer, long classes, long inner, const float *grad, const int64_t *target,
                        const float *weight, int reduction, long ignored, float *out)
{
    double weights = 0.0;
    for (long i = 0; i < outer * inner; i++)
        if (target[i] != ignored) {
            if (target[i] < 0 || target[i] >= classes)
                return 1;
            weights += weight ? weight[target[i]] : 1.0f;
        }
    for (long i = 0; i < outer * classes * inner; i++)
        out[i] = 0.0f;
    for (long o = 0; o < outer; o++, out += classes * inner)
        for (long j = 0; j < inner; j++) {
            const int64_t c = *target++;
            const float g = reduction == 0 ? grad[o * inner + j] : *grad;
            if (c != ignored && (reduction != 2 || weights != 0.0))
                out[c * inner + j] =
                    -g * (weight ? weight[c] : 1.0f) / (reduction == 2 ? (float)weights : 1.0f);
        }
    return 0;
}
