/* Plan a job and simulate a step and the whole run, by libelapse (docs/install.md):
 *   cc plan.c -o plan $(pkg-config --cflags --libs elapse) && ./plan job.json */
#include <elapse.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct elapse_error error = {0};
    struct elapse_job *job = NULL;
    struct elapse_plan *plan = NULL;
    struct elapse_step *step = NULL;
    struct elapse_run *run = NULL;
    if (argc != 2)
        return fprintf(stderr, "usage: plan JOB\n"), 2;
    if (elapse_job_load(argv[1], NULL, &job, &error) == ELAPSE_OK &&
        elapse_plan_find(job, NULL, &plan, &error) == ELAPSE_OK &&
        elapse_step_simulate(job, plan, NULL, &step, &error) == ELAPSE_OK &&
        elapse_run_simulate(job, NULL, &run, &error) == ELAPSE_OK) {
        struct elapse_plan_info p = {.size = sizeof p};
        struct elapse_step_info s = {.size = sizeof s};
        struct elapse_run_info r = {.size = sizeof r};
        elapse_plan_info(plan, &p);
        elapse_step_info(step, &s);
        elapse_run_info(run, &r);
        printf("plan: K=%d R=%d M=%d %s, %" PRId64 " ns a step, %.1f samples/s\n",
               p.pipeline_length, p.replicas, p.microbatches, p.schedule, p.step_ns,
               p.samples_per_s);
        printf("step: %" PRId64 " ns, bubble %.2f %%\n", s.step_ns, 100 * s.bubble_fraction);
        printf("run: %d epochs in %" PRId64 " ns\n", r.num_epochs, r.total_ns);
    } else {
        fprintf(stderr, "plan: %s\n%s\n", error.message, error.hint);
    }
    elapse_run_free(run);
    elapse_step_free(step);
    elapse_plan_free(plan);
    elapse_job_free(job);
    return error.status == ELAPSE_OK ? 0 : 1;
}
