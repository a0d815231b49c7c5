# What `cmake --install` puts in place: headers, libtemper.so, and the package
# that find_package(temper) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/temper")
install(TARGETS temper EXPORT temperTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/temper DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")
install(EXPORT temperTargets NAMESPACE temper:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/temperConfig.cmake.in
  "${PROJECT_BINARY_DIR}/temperConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/temperConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/temperConfig.cmake"
  "${PROJECT_BINARY_DIR}/temperConfigVersion.cmake"
  cmake/TemperTorch.cmake
  DESTINATION "${package_dir}")
