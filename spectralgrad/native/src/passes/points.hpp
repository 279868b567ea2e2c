// Sets of n points with k coordinates: their means, their cross-covariance, the distance of a fit, and the gradient
// with respect to the points. autograd/polar/point_sets.py has the derivation. One set after another: the compiler
// unrolls the loops over the coordinates for k = 2 and 3, the usual cases.
#pragma once
#include "../interface.hpp"

namespace SG_NS {
namespace {

constexpr int most_coordinates = 8;

template <class T, int K> struct Points {
  const sg::PointTask<T> t;  // a copy: what is written through its pointers cannot change it
  const int k = K ? K : t.k;
  static constexpr int most = K ? K : most_coordinates;

  void run() const {
    for (int64_t b = t.first; b < t.first + t.count; b++) {
      if (t.step == sg::cross_covariance) cross(b);
      else if (t.step == sg::fit_distance) distance(b);
      else pull(b);
    }
  }
  // Reads k numbers, or zeros.
  void read(const T* from, int64_t b, T* to, int count, T factor = 1) const {
    for (int j = 0; j < count; j++) to[j] = from ? factor * from[b * count + j] : T(0);
  }

  // C = Σ w (y − ȳ)(x − x̄)ᵀ, and the means unless they are null.
  void cross(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T total = 0, x[most] = {}, y[most] = {}, C[most * most] = {};
    if (t.x) {
      for (int i = 0; i < t.n; i++) {
        const T one = w ? w[i] : T(1);
        total += one;
        for (int j = 0; j < k; j++) {
          x[j] += one * X[i * k + j];
          y[j] += one * Y[i * k + j];
        }
      }
      const bool any = total > 0;
      for (int j = 0; j < k; j++) {
        x[j] = any ? x[j] / total : T(0);
        y[j] = any ? y[j] / total : T(0);
        t.x[b * k + j] = x[j];
        t.y[b * k + j] = y[j];
      }
    }
    for (int i = 0; i < t.n; i++) {
      const T one = w ? w[i] : T(1);
      for (int j = 0; j < k; j++) {
        const T far = one * (Y[i * k + j] - y[j]);
        for (int l = 0; l < k; l++) C[j * k + l] += far * (X[i * k + l] - x[l]);
      }
    }
    for (int j = 0; j < k * k; j++) t.C[b * k * k + j] = C[j];
  }

  // e = Σ w ‖C (x − x̄) − (y − ȳ)‖², where C is the rotation times the scale.
  void distance(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T e = 0, x[most], y[most], C[most * most];
    read(t.x, b, x, k);
    read(t.y, b, y, k);
    read(t.C, b, C, k * k);
    for (int i = 0; i < t.n; i++) {
      T one = 0;
      for (int j = 0; j < k; j++) {
        T miss = y[j] - Y[i * k + j];
        for (int l = 0; l < k; l++) miss += C[j * k + l] * (X[i * k + l] - x[l]);
        one += miss * miss;
      }
      e += w ? w[i] * one : one;
    }
    t.e[b] = e;
  }

  // x̄_i = w Cᵀ (y_i − ȳ) + w/W gx and ȳ_i = w C (x_i − x̄) + w/W gy, where C is the gradient of the cross-covariance.
  void pull(int64_t b) const {
    const T *X = t.X + b * t.n * k, *Y = t.Y + b * t.n * k, *w = t.w ? t.w + b * t.n : nullptr;
    T *gX = t.gX + b * t.n * k, *gY = t.gY + b * t.n * k, *gw = t.gw ? t.gw + b * t.n : nullptr;
    T total = w ? T(0) : T(t.n), x[most], y[most], gx[most], gy[most], C[most * most];
    for (int i = 0; w && i < t.n; i++) total += w[i];
    const T share = total > 0 ? 1 / total : T(0);
    read(t.x, b, x, k);
    read(t.y, b, y, k);
    read(t.C, b, C, k * k);
    read(t.gx, b, gx, k, share);
    read(t.gy, b, gy, k, share);
    for (int i = 0; i < t.n; i++) {
      T near[most], far[most], slope = 0;
      for (int j = 0; j < k; j++) {
        near[j] = X[i * k + j] - x[j];
        far[j] = Y[i * k + j] - y[j];
      }
      const T one = w ? w[i] : T(1);
      for (int j = 0; j < k; j++) {
        T of_x = gx[j], of_y = gy[j];
        for (int l = 0; l < k; l++) {
          of_x += C[l * k + j] * far[l];
          of_y += C[j * k + l] * near[l];
        }
        gX[i * k + j] = one * of_x;
        gY[i * k + j] = one * of_y;
        slope += far[j] * of_y + near[j] * gx[j];
      }
      if (gw) gw[i] = slope;
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
