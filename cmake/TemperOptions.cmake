# Flags that every target of temper shares, sanitizers, and ccache.
#
# They are the same for libraries, tests and examples on purpose: <torch/torch.h>
# takes about a minute to compile, and g++ reuses a precompiled header only under
# equal flags.
option(TEMPER_WERROR "Warnings are errors" OFF)
option(TEMPER_VERIFY "Verify every graph after every pass" OFF)
option(TEMPER_TESTS "Build the tests" ON)
option(TEMPER_EXAMPLES "Build the examples" ON)
option(TEMPER_BENCHMARKS "Build the benchmarks" ON)
set(TEMPER_SANITIZE "" CACHE STRING "address+undefined or thread, or empty")

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  message(FATAL_ERROR "temper: compiler ${CMAKE_CXX_COMPILER_ID} is not known; "
    "use g++ 12 or later (-DCMAKE_CXX_COMPILER=g++)")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
       AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS GCC_MIN_VERSION)
  message(FATAL_ERROR "temper: g++ ${CMAKE_CXX_COMPILER_VERSION} is too old; "
    "use ${GCC_MIN_VERSION} or later (-DCMAKE_CXX_COMPILER=g++-12)")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# -fPIC everywhere, not -fPIE in programs: see above.
add_compile_options(-fPIC)

add_library(temper_flags INTERFACE)
target_compile_options(temper_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  # Designated initialisers leave out what has a default, on purpose.
  -Wno-missing-field-initializers
  # Line tables tell where a crash is; LibTorch's full debug information makes
  # objects ten times larger and links slow.
  $<$<CONFIG:RelWithDebInfo>:-g1>)
if(TEMPER_WERROR)
  target_compile_options(temper_flags INTERFACE -Werror)
endif()
if(TEMPER_VERIFY)
  target_compile_definitions(temper_flags INTERFACE TEMPER_VERIFY=1)
endif()
if(TEMPER_SANITIZE)
  # g++ 12 believes it of std::function and std::regex then.
  target_compile_options(temper_flags INTERFACE -Wno-maybe-uninitialized)
endif()
if(TEMPER_SANITIZE STREQUAL "address+undefined")
  # vptr: LibTorch hides the type information of many of its classes.
  target_compile_options(temper_flags INTERFACE
    -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(temper_flags INTERFACE -fsanitize=address,undefined)
elseif(TEMPER_SANITIZE STREQUAL "thread")
  # -Wno-tsan: a fence in LibTorch's headers, which it does not see.
  target_compile_options(temper_flags INTERFACE
    -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  target_link_options(temper_flags INTERFACE -fsanitize=thread)
elseif(TEMPER_SANITIZE)
  message(FATAL_ERROR "temper: TEMPER_SANITIZE is '${TEMPER_SANITIZE}'; "
    "expected 'address+undefined', 'thread' or nothing")
endif()

# ccache fails, instead of compiling, where it cannot write.
find_program(CCACHE_PROGRAM ccache)
set(ccache_works FALSE)
if(CCACHE_PROGRAM)
  execute_process(COMMAND "${CCACHE_PROGRAM}" --get-config cache_dir
    OUTPUT_VARIABLE ccache_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(
    COMMAND sh -c "mkdir -p \"$1/tmp\" && test -w \"$1/tmp\"" sh "${ccache_dir}"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(ccache_dir AND failed EQUAL 0)
    set(ccache_works TRUE)
  else()
    message(STATUS "ccache is not used: cannot write to '${ccache_dir}'")
  endif()
endif()
if(ccache_works AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache must be told before it caches precompiled
  # headers and their users; -fpch-preprocess is the compiler's half of it. The
  # other two let build folders of this and other clones share what they built.
  set(CMAKE_CXX_COMPILER_LAUNCHER env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    ${CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()
