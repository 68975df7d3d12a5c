// SPDX-License-Identifier: MIT
// What RMM's build generates beside its logger: levels at compile time, and a macro for each.
#pragma once

#define RMM_LOG_LEVEL_TRACE    0
#define RMM_LOG_LEVEL_DEBUG    1
#define RMM_LOG_LEVEL_INFO     2
#define RMM_LOG_LEVEL_WARN     3
#define RMM_LOG_LEVEL_ERROR    4
#define RMM_LOG_LEVEL_CRITICAL 5
#define RMM_LOG_LEVEL_OFF      6

// Everything is compiled in, so the tests of what is logged run too; the logger's own level decides.
#define RMM_LOG_ACTIVE_LEVEL RMM_LOG_LEVEL_TRACE

#define RMM_LOG_TRACE(...)    rmm::default_logger().trace(__VA_ARGS__)
#define RMM_LOG_DEBUG(...)    rmm::default_logger().debug(__VA_ARGS__)
#define RMM_LOG_INFO(...)     rmm::default_logger().info(__VA_ARGS__)
#define RMM_LOG_WARN(...)     rmm::default_logger().warn(__VA_ARGS__)
#define RMM_LOG_ERROR(...)    rmm::default_logger().error(__VA_ARGS__)
#define RMM_LOG_CRITICAL(...) rmm::default_logger().critical(__VA_ARGS__)
