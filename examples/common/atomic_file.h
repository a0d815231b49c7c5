// Files that are there whole or not at all.
#pragma once

#include <functional>
#include <string>

namespace examples {

/// Writes `path` by way of `path`.tmp: `write` gets that name and fills the
/// file, which is then flushed to the disk and renamed. A process killed at
/// any moment leaves the old file or the new one. Throws std::runtime_error
/// naming the file and the system's reason.
void write_atomically(
    const std::string& path,
    const std::function<void(const std::string& temporary)>& write);

/// As above, with the whole content given.
void write_atomically(const std::string& path, const std::string& content);

/// Throws UsageError unless a file can be made at `path`: tells at the start of
/// a run what would otherwise end it. `option` is what the user wrote it after.
void check_writable(const std::string& option, const std::string& path);

/// Throws UsageError unless there is a file at `path` that can be read.
void check_readable(const std::string& option, const std::string& path);

} // namespace examples
