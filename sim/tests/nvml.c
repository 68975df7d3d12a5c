/* SPDX-License-Identifier: MIT
 * Selftest: the stand-in for NVML agrees with the simulated driver, in processes with CUDA and in one without, and looking does
 * not disturb the accounts that processes share. */
#define _GNU_SOURCE
#include "core_check.h"

#include <signal.h>
#include <sys/wait.h>

#define MIB (1ull << 20)

/* Records as NVIDIA documents them. */
struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct process_v3 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

static void *library;

/* Calls a function of the library by name. */
#define NVML(_name, ...)                                                                                               \
    ((int (*)())(dlsym(library, #_name) ? dlsym(library, #_name)                                                       \
                                        : (fprintf(stderr, "no %s\n", #_name), abort(), NULL)))(__VA_ARGS__)

static void nvml_open(void)
{
    char path[4096];
    Dl_info driver;
    CHECK(dladdr((void *)cuInit, &driver) != 0);
    snprintf(path, sizeof path, "%.*s/libnvidia-ml.so.1", (int)(strrchr(driver.dli_fname, '/') - driver.dli_fname),
             driver.dli_fname);
    library = dlopen(path, RTLD_NOW);
    CHECK(library != NULL);
    if (!library)
        exit(check_done());
}

static void *handle(unsigned index)
{
    void *device = NULL;
    CHECK_EQ(NVML(nvmlDeviceGetHandleByIndex_v2, index, &device), 0);
    return device;
}

static struct memory memory_of(unsigned index)
{
    struct memory memory = {0};
    CHECK_EQ(NVML(nvmlDeviceGetMemoryInfo, handle(index), &memory), 0);
    CHECK_EQ(memory.used + memory.free, memory.total);
    return memory;
}

struct nvml_child {
    pid_t pid;
    int line;
};
static struct nvml_child start(const char *visible, void (*body)(int line))
{
    struct nvml_child child;
    int lines[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines) == 0);
    fflush(NULL);
    child.pid = fork();
    child.line = lines[0];
    if (child.pid == 0) {
        close(lines[0]);
        check_passed = check_failed = 0;
        if (visible)
            setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        body(lines[1]);
        exit(check_failed || !check_passed);
    }
    close(lines[1]);
    return child;
}

static void end(struct nvml_child child, int expected)
{
    int status = -1;
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    CHECK_EQ(status, expected);
    close(child.line);
}

/* Tells how much of its device is in use, looks at NVML itself, and waits for the end. */
static void user(int line)
{
    size_t left, total;
    unsigned long long used;
    CUdeviceptr p;
    CHECK_EQ(NVML(nvmlInit_v2), 0); /* before cuInit */
    memory_of(0);
    check_begin(0);
    CHECK_OK(cuMemAlloc(&p, 256 * MIB));
    memory_of(0);
    CHECK_EQ(NVML(nvmlShutdown), 0);
    CHECK_OK(cuMemGetInfo(&left, &total));
    used = total - left;
    CHECK(write(line, &used, sizeof used) == sizeof used);
    check_wait(line);
}

static unsigned long long used_by(struct nvml_child child)
{
    unsigned long long used = 0;
    CHECK(read(child.line, &used, sizeof used) == sizeof used);
    return used;
}

/* An idle board's: what tools look at before they show a GPU at all. */
static void sensors(void)
{
    struct {
        unsigned version;
        int sensor, degrees;
    } newer = {sizeof newer | 1u << 24, 0, 0};
    struct memory bar1 = {0};
    unsigned power = 0, limit = 0, low = 0, high = 0, degrees = 0, hot = 0;
    unsigned long long energy = 0, later = 0;
    CHECK_EQ(NVML(nvmlDeviceGetPowerUsage, handle(0), &power), 0);
    CHECK_EQ(NVML(nvmlDeviceGetEnforcedPowerLimit, handle(0), &limit), 0);
    CHECK_EQ(NVML(nvmlDeviceGetPowerManagementLimitConstraints, handle(0), &low, &high), 0);
    CHECK(power > 0 && power < low && low < limit && limit <= high);
    CHECK_EQ(NVML(nvmlDeviceGetTotalEnergyConsumption, handle(0), &energy), 0);
    usleep(20000);
    CHECK_EQ(NVML(nvmlDeviceGetTotalEnergyConsumption, handle(0), &later), 0);
    CHECK(later >= energy + power / 50 - 1 && later < energy + 60ull * power); /* 20 ms of it, and less than a minute */
    CHECK_EQ(NVML(nvmlDeviceGetTemperature, handle(0), 0, &degrees), 0);
    CHECK_EQ(NVML(nvmlDeviceGetTemperatureThreshold, handle(0), 1, &hot), 0);
    CHECK(degrees > 20 && degrees < hot);
    CHECK_EQ(NVML(nvmlDeviceGetTemperature, handle(0), 1, &degrees), 2);
    CHECK_EQ(NVML(nvmlDeviceGetTemperatureV, handle(0), &newer), 0);
    CHECK_EQ((unsigned)newer.degrees, degrees);
    newer.version = 0;
    CHECK_EQ(NVML(nvmlDeviceGetTemperatureV, handle(0), &newer), 25);
    CHECK_EQ(NVML(nvmlDeviceGetBAR1MemoryInfo, handle(0), &bar1), 0);
    CHECK(bar1.used + bar1.free == bar1.total && bar1.total >= memory_of(0).total);
    CHECK_EQ(NVML(nvmlDeviceGetPowerUsage, NULL, &power), 2);
    CHECK_EQ(NVML(nvmlDeviceGetPowerUsage, handle(0), NULL), 2);
    CHECK_EQ(NVML(nvmlDeviceGetFanSpeed, handle(0), &power), 3); /* boards for computing have none */
}

/* This process has no CUDA. */
static void watch(void)
{
    struct process_v3 list[4];
    struct process_v1 first[4];
    unsigned count = 0;
    struct memory_v2 newer = {.version = sizeof newer | 2u << 24};

    setenv("GPUPROF_SIM", "devices=2,gpu=h100-80g,shared=nvml-test", 1);
    CHECK_EQ(NVML(nvmlInit_v2), 0);
    CHECK_EQ(NVML(nvmlDeviceGetCount_v2, &count), 0);
    CHECK_EQ(count, 2);
    CHECK_EQ(memory_of(0).used, 0);
    sensors();
    CHECK_EQ(memory_of(0).total, 85017755648);

    struct nvml_child one = start(NULL, user), two = start("1", user);
    unsigned long long bytes = used_by(one);
    CHECK(bytes >= 256 * MIB);
    CHECK_EQ(memory_of(0).used, bytes);
    unsigned long long other = used_by(two); /* its device 0 is the second one here */
    CHECK_EQ(memory_of(1).used, other);
    struct nvml_child three = start("0", user);
    unsigned long long more = used_by(three); /* of both */
    CHECK_EQ(memory_of(0).used, more);
    CHECK_EQ(NVML(nvmlDeviceGetMemoryInfo_v2, handle(0), &newer), 0);
    CHECK_EQ(newer.used, more);
    CHECK_EQ(newer.reserved + newer.used + newer.free, newer.total);
    newer.version = 0;
    CHECK_EQ(NVML(nvmlDeviceGetMemoryInfo_v2, handle(0), &newer), 25);

    count = 1;
    CHECK_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3, handle(0), &count, list), 7);
    CHECK_EQ(count, 2);
    count = 4;
    CHECK_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3, handle(0), &count, list), 0);
    CHECK_EQ(count, 2);
    CHECK((list[0].pid == (unsigned)one.pid && list[1].pid == (unsigned)three.pid) ||
          (list[1].pid == (unsigned)one.pid && list[0].pid == (unsigned)three.pid));
    CHECK_EQ(list[0].used + list[1].used, more);
    CHECK_EQ(list[0].gpu_instance, ~0u);
    count = 4;
    CHECK_EQ(NVML(nvmlDeviceGetComputeRunningProcesses, handle(1), &count, first), 0);
    CHECK_EQ(count, 1);
    CHECK_EQ(first[0].pid, two.pid);
    CHECK_EQ(NVML(nvmlDeviceGetGraphicsRunningProcesses_v3, handle(0), &count, list), 0);
    CHECK_EQ(count, 0);

    kill(one.pid, SIGKILL);
    end(one, SIGKILL);
    CHECK_EQ(memory_of(0).used, more - bytes);
    check_tell(two.line);
    end(two, 0);
    check_tell(three.line);
    end(three, 0);
    CHECK_EQ(memory_of(0).used, 0);
    CHECK_EQ(memory_of(1).used, 0);
    CHECK_EQ(NVML(nvmlShutdown), 0);
}

/* Private devices, whose names and properties are the driver's. */
static void same(int line)
{
    char name[96], theirs[96], bus[16];
    unsigned char uuid[16];
    struct pci pci;
    void *found = NULL;
    int major, minor, driver, active;
    unsigned value;
    size_t left, total;
    (void)line;
    setenv("GPUPROF_SIM", "devices=3,gpu=h100-80g", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2", 1);
    check_begin(0);
    CHECK_EQ(NVML(nvmlInit_v2), 0);
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK_EQ(memory_of(2).used, total - left);
    CHECK(memory_of(2).used > 0);
    CHECK_EQ(memory_of(0).used, 0);
    CHECK_OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK_EQ(NVML(nvmlDeviceGetHandleByPciBusId_v2, bus, &found), 0);
    CHECK(found == handle(2));
    CHECK_EQ(NVML(nvmlDeviceGetPciInfo_v3, found, &pci), 0);
    CHECK(!strcmp(pci.legacy, bus) && !strcmp(pci.bus_id + 4, bus));
    CHECK_OK(cuDeviceGetName(theirs, sizeof theirs, 0));
    CHECK_EQ(NVML(nvmlDeviceGetName, found, name, 96u), 0);
    CHECK(!strcmp(name, theirs));
    CHECK_EQ(NVML(nvmlDeviceGetName, found, name, 3u), 7);
    CHECK_OK(cuDeviceGetUuid((CUuuid *)uuid, 0));
    CHECK_EQ(NVML(nvmlDeviceGetUUID, found, name, 96u), 0);
    snprintf(theirs, sizeof theirs, "GPU-%02x%02x%02x%02x-", uuid[0], uuid[1], uuid[2], uuid[3]);
    CHECK(!strncmp(name, theirs, strlen(theirs)));
    snprintf(theirs, sizeof theirs, "%02x%02x", uuid[14], uuid[15]);
    CHECK(!strcmp(name + strlen(name) - 4, theirs));
    found = NULL;
    CHECK_EQ(NVML(nvmlDeviceGetHandleByUUID, name, &found), 0);
    CHECK(found == handle(2));
    CHECK_EQ(NVML(nvmlDeviceGetHandleByUUID, "GPU-none", &found), 6);
    CHECK_EQ(NVML(nvmlDeviceGetCudaComputeCapability, found, &major, &minor), 0);
    CHECK_OK(cuDeviceGetAttribute(&driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    CHECK_EQ(major, driver);
    CHECK_OK(cuDriverGetVersion(&driver));
    CHECK_EQ(NVML(nvmlSystemGetCudaDriverVersion_v2, &major), 0);
    CHECK_EQ(major, driver);
    CHECK_EQ(NVML(nvmlDeviceGetNvLinkState, found, 17u, &active), 0);
    CHECK_EQ(active, 1);
    CHECK_EQ(NVML(nvmlDeviceGetNvLinkState, found, 18u, &active), 2);
    CHECK_EQ(NVML(nvmlDeviceGetFanSpeed, found, &value), 3);
    CHECK_EQ(NVML(nvmlDeviceGetIndex, (void *)&pci, &value), 2);
    /* PyTorch asks for version 2 of the record, 36 bytes. */
    struct {
        unsigned version;
        unsigned char cluster[16];
        unsigned status, clique;
        unsigned char state;
        unsigned health, behind;
    } fabric = {.version = 2u << 24 | 36, .state = 7, .behind = 9};
    CHECK_EQ(NVML(nvmlDeviceGetGpuFabricInfoV, found, &fabric), 0);
    CHECK(fabric.state == 0 && fabric.version == (2u << 24 | 36) && fabric.behind == 9);
    fabric.version = 1;
    CHECK_EQ(NVML(nvmlDeviceGetGpuFabricInfoV, found, &fabric), 25);
    CHECK_EQ(NVML(nvmlShutdown), 0);
    CHECK_EQ(NVML(nvmlShutdown), 1);
    CHECK_EQ(NVML(nvmlDeviceGetTemperature, found, 0, &value), 1);
}

/* NCCL asks of each device and itself, and gives up on an error. */
static void reaches(void)
{
    int count = 2;
    for (int i = 0; i < count * count; i++)
        for (int index = 0; index < 2; index++) { /* reading and writing */
            int status = -1;
            CHECK_EQ(NVML(nvmlDeviceGetP2PStatus, handle((unsigned)(i / count)), handle((unsigned)(i % count)), index,
                          &status),
                     0);
            CHECK_EQ(status, 0);
        }
}

static void unlinked(int line)
{
    int active;
    (void)line;
    setenv("GPUPROF_SIM", "devices=2,gpu=t4", 1);
    CHECK_EQ(NVML(nvmlInit), 0);
    CHECK_EQ(NVML(nvmlDeviceGetNvLinkState, handle(0), 0u, &active), 3);
    reaches();
}

static void unreadable(int line)
{
    (void)line;
    setenv("GPUPROF_SIM", "devices=none", 1);
    CHECK_EQ(NVML(nvmlInit_v2), 9);
}

/* An idle H200: the first form counts what the driver keeps as used, the second does not. */
static void reserves(int line)
{
    struct memory_v2 newer = {.version = sizeof newer | 2u << 24};
    setenv("GPUPROF_SIM", "gpu=h200", 1);
    CHECK_EQ(NVML(nvmlInit_v2), 0);
    struct memory first = memory_of(0);
    CHECK_EQ(first.total, 150754820096);
    CHECK_EQ(first.used, 644939776);
    CHECK_EQ(NVML(nvmlDeviceGetMemoryInfo_v2, handle(0), &newer), 0);
    CHECK_EQ(newer.total, 150754820096);
    CHECK_EQ(newer.reserved, 644939776);
    CHECK_EQ(newer.used, 0);
    CHECK_EQ(newer.free, 150109880320);
    (void)line;
}

int main(void)
{
    nvml_open();
    end(start(NULL, reserves), 0);
    watch();
    end(start(NULL, same), 0);
    end(start(NULL, unlinked), 0);
    end(start(NULL, unreadable), 0);
    return check_done();
}
