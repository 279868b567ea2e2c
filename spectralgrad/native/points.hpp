// Sets of n points with k coordinates: their means, their cross-covariance, the distance of a fit, and the gradient with
// respect to the points. autograd/point_alignment.py has the derivation. One set after another: the compiler unrolls the
// loops over the coordinates for k = 2 and 3, the usual cases.
#pragma once
#include "interface.hpp"

namespace SG_NS {
namespace {

constexpr int most_coordinates = 8;

template <class T, int K> struct Points {
  const sg::PointTask<T>& t;
  const int k = K ? K : t.k;

  void run() const {
    for (int64_t b = t.first; b < t.first + t.count; b++) {
      if (t.step == sg::cross_covariance) cross(b);
      else if (t.step == sg::fit_distance) distance(b);
      else pull(b);
    }
  }
  T weight(int64_t b, int i) const { return t.w ? t.w[b * t.n + i] : T(1); }
  T mean(const T* means, int64_t b, int j) const { return means ? means[b * k + j] : T(0); }

  // C = Σ w (y − ȳ)(x − x̄)ᵀ, and the means unless they are null.
  void cross(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k;
    T total = 0, x[most_coordinates] = {}, y[most_coordinates] = {}, C[most_coordinates * most_coordinates] = {};
    if (t.x) {
      for (int i = 0; i < t.n; i++) {
        const T w = weight(b, i);
        total += w;
        for (int j = 0; j < k; j++) x[j] += w * X[i * k + j], y[j] += w * Y[i * k + j];
      }
      for (int j = 0; j < k; j++) {
        x[j] = total > 0 ? x[j] / total : T(0), y[j] = total > 0 ? y[j] / total : T(0);
        t.x[b * k + j] = x[j], t.y[b * k + j] = y[j];
      }
    }
    for (int i = 0; i < t.n; i++) {
      const T w = weight(b, i);
      for (int j = 0; j < k; j++) {
        const T one = w * (Y[i * k + j] - y[j]);
        for (int l = 0; l < k; l++) C[j * k + l] += one * (X[i * k + l] - x[l]);
      }
    }
    for (int j = 0; j < k * k; j++) t.C[b * k * k + j] = C[j];
  }

  // e = Σ w ‖C (x − x̄) − (y − ȳ)‖², where C is the rotation times the scale.
  void distance(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *C = t.C + b * k * k;
    T e = 0;
    for (int i = 0; i < t.n; i++) {
      T one = 0;
      for (int j = 0; j < k; j++) {
        T miss = mean(t.y, b, j) - Y[i * k + j];
        for (int l = 0; l < k; l++) miss += C[j * k + l] * (X[i * k + l] - mean(t.x, b, l));
        one += miss * miss;
      }
      e += weight(b, i) * one;
    }
    t.e[b] = e;
  }

  // x̄_i = w Cᵀ (y_i − ȳ) + w/W gx and ȳ_i = w C (x_i − x̄) + w/W gy, where C is the gradient of the cross-covariance.
  void pull(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *C = t.C + b * k * k;
    T total = 0;
    for (int i = 0; i < t.n; i++) total += weight(b, i);
    const T share = total > 0 ? 1 / total : T(0);
    for (int i = 0; i < t.n; i++) {
      const T w = weight(b, i);
      T gx[most_coordinates] = {}, slope = 0;
      for (int j = 0; j < k; j++) {
        const T y = Y[i * k + j] - mean(t.y, b, j), gy = share * mean(t.gy, b, j);
        T one = 0;
        for (int l = 0; l < k; l++) {
          one += C[j * k + l] * (X[i * k + l] - mean(t.x, b, l));
          gx[l] += C[j * k + l] * y;
        }
        t.gY[(b * t.n + i) * k + j] = w * (one + gy);
        slope += y * (one + gy);
      }
      for (int l = 0; l < k; l++) {
        const T gx_mean = share * mean(t.gx, b, l);
        t.gX[(b * t.n + i) * k + l] = w * (gx[l] + gx_mean);
        slope += (X[i * k + l] - mean(t.x, b, l)) * gx_mean;
      }
      if (t.gw) t.gw[b * t.n + i] = slope;
    }
  }
};

template <class T> void points(const sg::PointTask<T>& t) {
  if (t.k == 2) Points<T, 2>{t}.run();
  else if (t.k == 3) Points<T, 3>{t}.run();
  else Points<T, 0>{t}.run();
}

}  // namespace
}  // namespace SG_NS
