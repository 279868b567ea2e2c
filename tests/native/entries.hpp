// The entries of the kernel's C interface that the programs here call, for both types.
#pragma once
#include <cstdint>

template <class T> using Svd = int (*)(const T*, T*, T*, T*, int64_t, int64_t, int64_t, int);
template <class T> struct Entry {
  int (*eigh)(const T*, T*, T*, int64_t, int64_t, T, int);
  int (*root)(int, const T*, T*, T*, T*, int64_t, int64_t, T, T, T, int);
  int (*frechet)(int, int, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, int);
  Svd<T> svd;
  int (*svd_gradient)(const T*, const T*, const T*, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, int64_t, T,
                      int, int);
  int (*single)(const T*, T*, T*, int64_t, int64_t, T, int);
  int (*root_single)(int, const T*, T*, T*, T*, int64_t, int64_t, T, T, T, int);
  int (*complex_lanes)(const T*, T*, T*, int64_t, int64_t, T, int);
  int (*complex_single)(const T*, T*, T*, int64_t, int64_t, T, int);
  int (*eigh_gradient)(const T*, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, T, int, int, int);
  int (*power)(const T*, T*, T*, T*, int64_t, int64_t, T, T, T, T, T, int, int);
  int (*power_single)(const T*, T*, T*, T*, int64_t, int64_t, T, T, T, T, T, int, int);
  int (*points)(int, const T*, const T*, const T*, T*, T*, T*, T*, const T*, const T*, T*, T*, T*, int64_t, int64_t, int64_t,
                int);
  int (*feature_moments)(const T*, const T*, const T*, T*, T*, int64_t, int64_t, int64_t, int64_t, int);
  int (*feature_map)(const T*, const T*, const T*, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, int64_t,
                     int64_t, int);
  int (*singular_function)(const T*, const T*, const T*, const T*, const T*, const T*, const T*, T*, int64_t, int64_t, int64_t,
                           int);
  int (*divided)(int, const T*, const T*, T*, int64_t*, T*, const T*, T*, int64_t, int64_t, T, int, int);
  Svd<T> svd_single, complex_svd, complex_svd_single;
};
extern "C" {
int sg_eigh_f32(const float*, float*, float*, int64_t, int64_t, float, int);
int sg_eigh_f64(const double*, double*, double*, int64_t, int64_t, double, int);
int sg_root_f32(int, const float*, float*, float*, float*, int64_t, int64_t, float, float, float, int);
int sg_root_f64(int, const double*, double*, double*, double*, int64_t, int64_t, double, double, double, int);
int sg_frechet_f32(int, int, const float*, const float*, const float*, const float*, float*, int64_t, int64_t, int);
int sg_frechet_f64(int, int, const double*, const double*, const double*, const double*, double*, int64_t, int64_t, int);
int sg_svd_f32(const float*, float*, float*, float*, int64_t, int64_t, int64_t, int);
int sg_svd_f64(const double*, double*, double*, double*, int64_t, int64_t, int64_t, int);
int sg_svd_gradient_f32(const float*, const float*, const float*, const float*, const float*, const float*, const float*,
                        float*, int64_t, int64_t, int64_t, float, int, int);
int sg_svd_gradient_f64(const double*, const double*, const double*, const double*, const double*, const double*,
                        const double*, double*, int64_t, int64_t, int64_t, double, int, int);
int sg_eigh_single_f32(const float*, float*, float*, int64_t, int64_t, float, int);
int sg_eigh_single_f64(const double*, double*, double*, int64_t, int64_t, double, int);
int sg_root_single_f32(int, const float*, float*, float*, float*, int64_t, int64_t, float, float, float, int);
int sg_root_single_f64(int, const double*, double*, double*, double*, int64_t, int64_t, double, double, double, int);
int sg_eigh_c64(const float*, float*, float*, int64_t, int64_t, float, int);
int sg_eigh_c128(const double*, double*, double*, int64_t, int64_t, double, int);
int sg_eigh_single_c64(const float*, float*, float*, int64_t, int64_t, float, int);
int sg_eigh_single_c128(const double*, double*, double*, int64_t, int64_t, double, int);
int sg_eigh_gradient_f32(const float*, const float*, const float*, const float*, const float*, float*, int64_t, int64_t,
                         float, int, int, int);
int sg_eigh_gradient_f64(const double*, const double*, const double*, const double*, const double*, double*, int64_t,
                         int64_t, double, int, int, int);
int sg_power_f32(const float*, float*, float*, float*, int64_t, int64_t, float, float, float, float, float, int, int);
int sg_power_f64(const double*, double*, double*, double*, int64_t, int64_t, double, double, double, double, double, int, int);
int sg_power_single_f32(const float*, float*, float*, float*, int64_t, int64_t, float, float, float, float, float, int, int);
int sg_power_single_f64(const double*, double*, double*, double*, int64_t, int64_t, double, double, double, double, double, int, int);
int sg_points_f32(int, const float*, const float*, const float*, float*, float*, float*, float*, const float*, const float*,
                  float*, float*, float*, int64_t, int64_t, int64_t, int);
int sg_points_f64(int, const double*, const double*, const double*, double*, double*, double*, double*, const double*,
                  const double*, double*, double*, double*, int64_t, int64_t, int64_t, int);
int sg_feature_moments_f32(const float*, const float*, const float*, float*, float*, int64_t, int64_t, int64_t, int64_t, int);
int sg_feature_moments_f64(const double*, const double*, const double*, double*, double*, int64_t, int64_t, int64_t, int64_t,
                           int);
int sg_feature_map_f32(const float*, const float*, const float*, const float*, const float*, const float*, const float*,
                       float*, int64_t, int64_t, int64_t, int64_t, int);
int sg_feature_map_f64(const double*, const double*, const double*, const double*, const double*, const double*,
                       const double*, double*, int64_t, int64_t, int64_t, int64_t, int);
int sg_singular_function_f32(const float*, const float*, const float*, const float*, const float*, const float*, const float*, float*,
                             int64_t, int64_t, int64_t, int);
int sg_divided_f32(int, const float*, const float*, float*, int64_t*, float*, const float*, float*, int64_t, int64_t, float, int, int);
int sg_singular_function_f64(const double*, const double*, const double*, const double*, const double*, const double*, const double*, double*,
                             int64_t, int64_t, int64_t, int);
int sg_divided_f64(int, const double*, const double*, double*, int64_t*, double*, const double*, double*, int64_t, int64_t, double, int, int);
int sg_svd_single_f32(const float*, float*, float*, float*, int64_t, int64_t, int64_t, int);
int sg_svd_single_f64(const double*, double*, double*, double*, int64_t, int64_t, int64_t, int);
int sg_svd_c64(const float*, float*, float*, float*, int64_t, int64_t, int64_t, int);
int sg_svd_c128(const double*, double*, double*, double*, int64_t, int64_t, int64_t, int);
int sg_svd_single_c64(const float*, float*, float*, float*, int64_t, int64_t, int64_t, int);
int sg_svd_single_c128(const double*, double*, double*, double*, int64_t, int64_t, int64_t, int);
const char* sg_isa();
}

inline Entry<float> entries(float) {
  return {sg_eigh_f32, sg_root_f32, sg_frechet_f32, sg_svd_f32, sg_svd_gradient_f32, sg_eigh_single_f32, sg_root_single_f32,
          sg_eigh_c64, sg_eigh_single_c64, sg_eigh_gradient_f32, sg_power_f32, sg_power_single_f32, sg_points_f32,
          sg_feature_moments_f32, sg_feature_map_f32, sg_singular_function_f32, sg_divided_f32,
          sg_svd_single_f32, sg_svd_c64, sg_svd_single_c64};
}
inline Entry<double> entries(double) {
  return {sg_eigh_f64, sg_root_f64, sg_frechet_f64, sg_svd_f64, sg_svd_gradient_f64, sg_eigh_single_f64, sg_root_single_f64,
          sg_eigh_c128, sg_eigh_single_c128, sg_eigh_gradient_f64, sg_power_f64, sg_power_single_f64, sg_points_f64,
          sg_feature_moments_f64, sg_feature_map_f64, sg_singular_function_f64, sg_divided_f64,
          sg_svd_single_f64, sg_svd_c128, sg_svd_single_c128};
}
