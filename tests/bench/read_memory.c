/* tests/bench/read_memory.c - the rate at which all cores read memory: what a model's weights, each read
 * once for a token, cannot be faster than. Prints bytes per second; bench_generate.sh compiles it and divides by it. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MIB = 512, ROUNDS = 7, BLOCK = 4096, LANES = 64 };

/* Independent sums, so that additions do not wait for one another. */
static float sum_block(const float *a)
{
    float sums[LANES] = {0}, all = 0;
    for (int j = 0; j < BLOCK; j += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += a[j + k];
    for (int k = 0; k < LANES; k++)
        all += sums[k];
    return all;
}

int main(void)
{
    const int64_t num = (int64_t)MIB * 1024 * 1024 / (int64_t)sizeof(float);
    float *a = malloc((size_t)num * sizeof *a);
    double best = 0, sum = 0;
    if (!a)
        return 3;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < num; i++)
        a[i] = 1;
    for (int r = 0; r < ROUNDS; r++) {
        const double start = omp_get_wtime();
#pragma omp parallel for schedule(static) reduction(+ : sum)
        for (int64_t b = 0; b < num; b += BLOCK)
            sum += (double)sum_block(a + b);
        const double rate = (double)num * sizeof *a / (omp_get_wtime() - start);
        best = rate > best ? rate : best;
    }
    free(a);
    printf("%.0f\n", sum > 0 ? best : 0);
    return 0;
}
