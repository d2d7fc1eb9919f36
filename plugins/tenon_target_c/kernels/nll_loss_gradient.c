/* For T = f32 f64. */
/* The gradient of `k_nll_loss` for x: minus grad at each target; grad has one number, or one for each target if
   `reduction` is 0. */
int k_nll_loss_gradient_$(long outer, long classes, long inner, const T *grad, const int64_t *target,
                          const T *weight, int reduction, long ignored, T *out)
{
    double weights = 0.0;
    for (long i = 0; i < outer * inner; i++)
        if (target[i] != ignored) {
            if (target[i] < 0 || target[i] >= classes)
                return 1;
            weights += weight ? weight[target[i]] : 1;
        }
    for (long i = 0; i < outer * classes * inner; i++)
        out[i] = 0;
    for (long o = 0; o < outer; o++, out += classes * inner)
        for (long j = 0; j < inner; j++) {
            const int64_t c = *target++;
            const T g = reduction == 0 ? grad[o * inner + j] : *grad;
            if (c != ignored && (reduction != 2 || weights != 0.0))
                out[c * inner + j] =
                    -g * (weight ? weight[c] : 1) / (reduction == 2 ? (T)weights : 1);
        }
    return 0;
}
