// Write aside, flush, rename, flush the folder.
#include "common/atomic_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include "common/run_main.h"

namespace examples {

namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw std::runtime_error(
      "cannot write '" + path + "': " + std::strerror(error));
}

void flush(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) {
    fail(path, errno);
  }
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot flush a folder; the rename holds all the same.
  if (error != 0 && error != EINVAL) {
    fail(path, error);
  }
}

} // namespace

void write_atomically(
    const std::string& path,
    const std::function<void(const std::string&)>& write) {
  const std::string temporary = path + ".tmp";
  try {
    write(temporary);
    flush(temporary, O_RDONLY);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      fail(path, errno);
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  flush(folder_of(path), O_RDONLY | O_DIRECTORY);
}

void write_atomically(const std::string& path, const std::string& content) {
  write_atomically(path, [&](const std::string& temporary) {
    errno = 0;
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) {
      fail(temporary, errno != 0 ? errno : EIO);
    }
  });
}

void check_writable(const std::string& option, const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string subject = option + " '" + path + "' cannot be written: ";
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError(
        subject + "'" + folder +
        "' is no folder; make it, or name a file in "
        "one that exists");
  }
  if (fs::is_directory(path, error)) {
    throw UsageError(
        subject + "it is a folder, expected the name of a file; add one");
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw UsageError(
        subject + "folder '" + folder + "' is closed to this user (" +
        std::strerror(errno) + "); name a file in a folder of yours");
  }
}

void check_readable(const std::string& option, const std::string& path) {
  const std::string subject = option + " '" + path + "' cannot be read: ";
  const std::string remedy =
      "; name a file that exists, or leave " + option + " out";
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw UsageError(subject + "there is no such file" + remedy);
  }
  if (!fs::is_regular_file(status)) {
    throw UsageError(
        subject +
        (fs::is_directory(status) ? "it is a folder" : "it is no file") +
        remedy);
  }
  if (::access(path.c_str(), R_OK) != 0) {
    throw UsageError(subject + std::strerror(errno) + remedy);
  }
}

} // namespace examples
