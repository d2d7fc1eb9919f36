/* Special functions; those of floats are computed in double precision. */
#include <math.h>

/* The inverse of erf: an approximation, then Newton's method. */
double k_erfinv(double x)
{
    const double a = fabs(x), z = x * x;
    double y;
    if (!(a < 1.0))
        return a == 1.0 ? copysign(INFINITY, x) : NAN;
    if (a <= 0.7) {
        y = x * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899) /
            ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
    } else {
        const double r = sqrt(-log((1.0 - a) / 2.0));
        y = copysign((((1.641345311 * r + 3.429567803) * r - 1.624906493) * r - 1.970840454), x) /
            ((1.637067800 * r + 3.543889200) * r + 1.0);
    }
    for (int i = 0; i < 2; i++)
        y -= (erf(y) - x) / (1.1283791670955126 * exp(-y * y));
    return y;
}

float k_erfinvf(float x)
{
    return (float)k_erfinv(x);
}

/* Digamma, the logarithmic derivative of the gamma function, by recurrence, reflection and asymptotic series. */
double k_digamma(double x)
{
    double result = 0.0, z;
    if (x == 0.0)
        return copysign(INFINITY, -x);
    if (x < 0.0) {
        if (x == floor(x))
            return NAN;
        return k_digamma(1.0 - x) - 3.14159265358979324 / tan(3.14159265358979324 * (x - floor(x)));
    }
    for (; x < 10.0; x += 1.0)
        result -= 1.0 / x;
    z = 1.0 / (x * x);
    result += log(x) - 0.5 / x;
    return result - z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z * (1.0 / 240.0 - z / 132.0))));
}

float k_digammaf(float x)
{
    return (float)k_digamma(x);
}
