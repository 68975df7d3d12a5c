/* SPDX-License-Identifier: MIT
 * The interface of NVIDIA's management library, as far as the stand-in answers it: values and records as
 * NVIDIA documents them, and what its files share. */
#ifndef SIM_NVML_H
#define SIM_NVML_H

#include "machine.h"

#include <stdbool.h>

#define SIM_NVML_LIBRARY "libnvidia-ml.so.1"

enum nvml_return {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_IRQ_ISSUE = 11,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_UNKNOWN = 999
};

/* The size of a record and its version in one number, which callers put into the record. */
#define NVML_VERSION(_record, _version) (sizeof(_record) | (unsigned)(_version) << 24)

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct nvml_process_v2 { /* of the functions _v2 and _v3 */
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
struct nvml_pci_v1 { /* of the functions before _v3 */
    char bus_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    unsigned reserved[4];
};
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};
struct nvml_pci_ext {
    unsigned version, domain, bus, device, pci_device, pci_subsystem, base_class, sub_class;
    char bus_id[32];
};
struct nvml_fabric {
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
};
struct nvml_fabric_v2 { /* version 3 has one number more */
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health;
};
struct nvml_fabric_v3 {
    struct nvml_fabric_v2 same;
    unsigned char summary;
};
struct nvml_utilization {
    unsigned gpu, memory;
};
struct nvml_uuid {
    unsigned version, type; /* 1: text, 2: bytes */
    union {
        char text[41];
        unsigned char bytes[16];
    } value;
};

/* A device's handle points to one of these. */
struct nvml_device {
    int physical;
    struct sim_machine_device is;
};

/* ---- driver.c ---------------------------------------------------------------------------------------------------- */
/* Counted; the last end of the library keeps what it found. */
enum nvml_return sim_nvml_begin(void);
enum nvml_return sim_nvml_end(void);
bool sim_nvml_begun(void);
int sim_nvml_count(void);
/* NULL: no such device. */
struct nvml_device *sim_nvml_device(int physical);
/* SUCCESS if the library is begun and the handle is one of its own. */
enum nvml_return sim_nvml_check(const struct nvml_device *device);
/* As sim_share_processes of machine.h. */
int sim_nvml_processes(const struct nvml_device *device, int *pids, unsigned long long *bytes, int most);
/* Reports the function once; UNINITIALIZED or NOT_SUPPORTED. */
enum nvml_return sim_nvml_absent(const char *function);

#define NVML_API __attribute__((visibility("default"))) enum nvml_return

#endif
