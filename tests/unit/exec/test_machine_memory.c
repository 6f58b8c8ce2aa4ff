/* Memory of a machine and of its control groups, in a folder that has their files. */
#include <sys/stat.h>

#include "profiles/base/machine_memory.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s", name);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(in_folder(path), 0777);
        *slash = '/';
    }
    put_text(name, text);
}

static void memory__is_the_least_of_machine_and_groups(void **state)
{
    char root[512];
    (void)state;
    snprintf(root, sizeof root, "%s", in_folder(""));
    assert_true(memory_available_in(root) == INT64_MAX);
    put("proc/meminfo", "MemTotal:  4000 kB\nMemAvailable:    3000 kB\n");
    assert_true(memory_available_in(root) == 3000 * 1024);
    assert_true(memory_limit_in(root) == INT64_MAX);
    put("proc/self/cgroup", "0::/jobs/mine\n");
    put("sys/fs/cgroup/jobs/mine/memory.max", "max\n");
    put("sys/fs/cgroup/jobs/memory.max", "2000000\n");
    put("sys/fs/cgroup/jobs/memory.current", "1500000\n");
    put("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 300000\n");
    assert_true(memory_limit_in(root) == 2000000);
    assert_true(memory_available_in(root) == 800000);
    put("sys/fs/cgroup/memory.max", "700000\n"); /* the root is a group's, in a container */
    put("sys/fs/cgroup/memory.current", "800000\n");
    assert_true(memory_limit_in(root) == 700000);
    assert_true(memory_available_in(root) == 0);
}

static void memory__knows_the_first_version_too(void **state)
{
    char root[512];
    (void)state;
    snprintf(root, sizeof root, "%s", in_folder(""));
    put("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/away\n1:name=systemd:/y\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n"); /* "/away" is the host's */
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
    assert_true(memory_limit_in(root) == 5000000);
    assert_true(memory_available_in(root) == 4000000);
    put("sys/fs/cgroup/memory/away/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/away/memory.usage_in_bytes", "1000000\n");
    put("sys/fs/cgroup/memory/away/memory.stat", "inactive_file 7\ntotal_inactive_file 500000\n");
    assert_true(memory_limit_in(root) == 3000000);
    assert_true(memory_available_in(root) == 2500000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory__is_the_least_of_machine_and_groups, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(memory__knows_the_first_version_too, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
